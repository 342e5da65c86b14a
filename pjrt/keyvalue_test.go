package pjrt_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// keyValuePlugin is the source of a plugin in C, compiled with the official header.
// PJRT_Client_Create uses the key-value store in several threads and returns an error with its
// observations; PJRT_Client_Destroy uses it once more.
const keyValuePlugin = `
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pjrt_c_api.h"

struct PJRT_Error { PJRT_Error_Code code; size_t n; char text[4096]; };

static PJRT_Error *fail(PJRT_Error_Code code, const char *text, size_t n) {
  PJRT_Error *e = calloc(1, sizeof *e);
  e->code = code, e->n = n < sizeof e->text ? n : sizeof e->text;
  memcpy(e->text, text, e->n);
  return e;
}

static void destroy(PJRT_Error_Destroy_Args *a) { free(a->error); }
static void message(PJRT_Error_Message_Args *a) { a->message = a->error->text, a->message_size = a->error->n; }
static PJRT_Error *code(PJRT_Error_GetCode_Args *a) { a->code = a->error->code; return NULL; }
static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *a) { (void)a; return NULL; }

static PJRT_Client_Create_Args client;
static PJRT_CallbackError make_error = fail;

static PJRT_Error *put(const char *key, const char *value, size_t n) {
  PJRT_KeyValuePutCallback_Args a = {.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE, .key = key,
	.key_size = strlen(key),
    .value = value, .value_size = n, .callback_error = &make_error, .user_arg = client.kv_put_user_arg};
  return client.kv_put_callback(&a);
}

// get writes what came of it: the value, or the code and the text of an error.
static void get(const char *key, int timeout, char *into) {
  PJRT_KeyValueGetCallback_Args a = {.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE, .key = key,
	.key_size = strlen(key),
    .timeout_in_ms = timeout, .callback_error = &make_error, .user_arg = client.kv_get_user_arg};
  PJRT_Error *e = client.kv_get_callback(&a);
  if (e) { sprintf(into, "error %d %.*s", e->code, (int)e->n, e->text); free(e); return; }
  sprintf(into, "%d:%.*s", (int)a.value_size, (int)a.value_size, a.value);
  a.value_deleter_callback(a.value);
}

static void try_get(const char *key, char *into) {
  PJRT_KeyValueTryGetCallback_Args a = {.struct_size = PJRT_KeyValueTryGetCallback_Args_STRUCT_SIZE, .key = key,
	.key_size = strlen(key),
    .callback_error = &make_error, .user_arg = client.kv_try_get_user_arg};
  PJRT_Error *e = client.kv_try_get_callback(&a);
  if (e) { sprintf(into, "error %d %.*s", e->code, (int)e->n, e->text); free(e); return; }
  sprintf(into, "%d:%.*s", (int)a.value_size, (int)a.value_size, a.value);
  a.value_deleter_callback(a.value);
}

#define THREADS 16
static void *each(void *arg) {
  static __thread char text[256], key[32];
  for (int round = 0; round < 20; round++) {
    int me = (int)(size_t)arg, other = (me + 1) % THREADS;
    sprintf(key, "%d of thread %d", round, me);
    PJRT_Error *e = put(key, key, strlen(key));
    if (e) return e;
    char want[64];
    sprintf(key, "%d of thread %d", round, other);
    sprintf(want, "%d:%s", (int)strlen(key), key);
    get(key, 20000, text);
    if (strcmp(text, want)) return fail(13, text, strlen(text));
  }
  return NULL;
}

static PJRT_Error *create(PJRT_Client_Create_Args *a) {
  client = *a;
  static char report[4096], text[1024];
  if (!a->kv_get_callback) return fail(9, "no store", 8);
  strcpy(report, "saw");
  PJRT_Error *e = put("key", "va\0lue", 6);
  if (e) return e;
  get("key", 1000, text); strcat(report, " [");
  strcat(report, text); strcat(report, "]");  // ends at the zero
  try_get("none", text); strcat(report, " ["); strcat(report, text); strcat(report, "]");
  get("none", 30, text); strcat(report, " ["); strcat(report, text); strcat(report, "]");
  e = put("refused", "", 0);
  if (e) { sprintf(text, " [error %d %.*s]", e->code, (int)e->n, e->text); strcat(report, text); free(e); }
  try_get("panics", text); strcat(report, " ["); strcat(report, text); strcat(report, "]");
  get("empty", 1000, text); strcat(report, " ["); strcat(report, text); strcat(report, "]");
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, each, (void *)i);
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    if (failed) return failed;
  }
  try_get("wait", text);
  if (!strncmp(text, "1:", 2)) { get("never", 600000, text); return fail(14, text, strlen(text)); }
  try_get("make", text);
  if (!strncmp(text, "1:", 2)) { a->client = (PJRT_Client *)report; return NULL; }
  return fail(14, report, strlen(report));
}

static PJRT_Error *end(PJRT_Client_Destroy_Args *a) { (void)a; return put("destroyed", "1", 1); }

PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version = (PJRT_Api_Version){.struct_size = PJRT_Api_Version_STRUCT_SIZE,
	.major_version = PJRT_API_MAJOR, .minor_version = PJRT_API_MINOR};
  api.PJRT_Error_Destroy = destroy, api.PJRT_Error_Message = message, api.PJRT_Error_GetCode = code;
  api.PJRT_Plugin_Initialize = initialize, api.PJRT_Client_Create = create, api.PJRT_Client_Destroy = end;
  return &api;
}
`

// faultyStore is a store whose methods fail for some keys.
type faultyStore struct{ memory }

func (n *faultyStore) Get(ctx context.Context, key string) ([]byte, error) {
	if key == "empty" {
		return nil, nil
	}
	return n.memory.Get(ctx, key)
}

func (n *faultyStore) TryGet(ctx context.Context, key string) ([]byte, error) {
	if key == "panics" {
		panic("a bug")
	}
	return n.memory.TryGet(ctx, key)
}

func (n *faultyStore) Put(ctx context.Context, key string, value []byte) error {
	if key == "refused" {
		return fmt.Errorf("disk: %w", pjrt.ResourceExhausted)
	}
	return n.memory.Put(ctx, key, value)
}

// memory is a store in memory.
type memory struct{ values chan map[string]string }

func newMemory(values map[string]string) memory {
	m := memory{make(chan map[string]string, 1)}
	m.values <- values
	return m
}

func (m memory) TryGet(_ context.Context, key string) ([]byte, error) {
	all := <-m.values
	defer func() { m.values <- all }()
	value, ok := all[key]
	if !ok {
		return nil, pjrt.NotFound
	}
	return []byte(value), nil
}

func (m memory) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		if value, err := m.TryGet(ctx, key); err == nil {
			return value, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (m memory) Put(_ context.Context, key string, value []byte) error {
	all := <-m.values
	all[key] = string(value)
	m.values <- all
	return nil
}

func openKeyValuePlugin(t *testing.T) *pjrt.Plugin {
	t.Helper()
	path := library(t, "keyValuePlugin", keyValuePlugin, "-std=c11", "-D_GNU_SOURCE", "-pthread", "-I",
		filepath.Dir(plugintest.Header(t)))
	p, err := pjrt.Open(path)
	require.NoError(t, err)
	return p
}

func TestPluginUsesKeyValueStore(t *testing.T) {
	store := &faultyStore{newMemory(map[string]string{})}
	_, err := openKeyValuePlugin(t).NewClient(context.Background(), pjrt.ClientOptions{KeyValues: store})
	var pluginErr *pjrt.Error
	require.ErrorAs(t, err, &pluginErr)
	require.Equal(t, pjrt.Unavailable, pluginErr.Code)
	// 5 is NotFound, 4 DeadlineExceeded, 8 ResourceExhausted, 13 Internal.
	assert.Equal(t,
		"saw [6:va] [error 5 NOT_FOUND] [error 4 context deadline exceeded] [error 8 disk: RESOURCE_EXHAUSTED] "+
			"[error 13 pjrt: key-value store: it panicked: a bug: INTERNAL] [0:]", pluginErr.Msg)
	value, err := store.TryGet(context.Background(), "key")
	require.NoError(t, err)
	assert.Equal(t, "va\x00lue", string(value))
}

func TestNoKeyValueStoreMeansNoCallbacks(t *testing.T) {
	_, err := openKeyValuePlugin(t).NewClient(context.Background(), pjrt.ClientOptions{})
	require.ErrorIs(t, err, pjrt.FailedPrecondition)
	require.ErrorContains(t, err, "no store")
}

func TestCanceledNewClientCancelsRequests(t *testing.T) {
	store := newMemory(map[string]string{"wait": "1"})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := openKeyValuePlugin(t).NewClient(ctx, pjrt.ClientOptions{KeyValues: store})
	require.Error(t, err)
	assert.Less(t, time.Since(start), 20*time.Second, "the plugin would wait ten minutes")
}

func TestKeyValueStoreWorksUntilClientIsDestroyed(t *testing.T) {
	store := newMemory(map[string]string{"make": "1"})
	// The plugin has no other functions, so NewClient fails and destroys the client.
	_, err := openKeyValuePlugin(t).NewClient(context.Background(), pjrt.ClientOptions{KeyValues: store})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	value, err := store.TryGet(context.Background(), "destroyed")
	require.NoError(t, err)
	assert.Equal(t, "1", string(value))
}
