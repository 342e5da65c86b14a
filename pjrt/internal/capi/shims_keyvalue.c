// Requests of the plugin to Go, and the creation of a client with a key-value store.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"

typedef void *(*error_maker)(int code, const char *message, size_t n);

enum { CANCELLED = 1, RESOURCE_EXHAUSTED = 8 };

struct tps_request_pipe {
  int fd;  // -1 after close
  pthread_mutex_t mu;
};

tps_request_pipe *tps_request_pipe_new(int fd) {
  tps_request_pipe *s = malloc(sizeof *s);
  if (s) {
    s->fd = fd;
    pthread_mutex_init(&s->mu, NULL);
  }
  return s;
}

void tps_request_pipe_close(tps_request_pipe *s) {
  pthread_mutex_lock(&s->mu);
  s->fd = -1;
  pthread_mutex_unlock(&s->mu);
}

void tps_request_read(uint64_t address, int *kind, tps_str *key, tps_str *value, int *timeout_ms) {
  const tps_request *q = (const tps_request *)(uintptr_t)address;
  *kind = q->kind, *key = q->key, *value = q->value, *timeout_ms = q->timeout_ms;
}

void tps_request_reply(uint64_t address, int code, const char *p, size_t n) {
  tps_request *q = (tps_request *)(uintptr_t)address;
  char *copy = malloc(n + 1);  // malloc(0) may return NULL
  if (copy) {
    if (n) memcpy(copy, p, n);
  } else {
    code = RESOURCE_EXHAUSTED;
    n = 0;
  }
  pthread_mutex_lock(&q->mu);
  q->code = code, q->p = copy, q->n = n, q->has_reply = true;
  pthread_cond_signal(&q->replied);
  pthread_mutex_unlock(&q->mu);
}

void tps_send_request(tps_request_pipe *s, tps_request *q) {
  uint64_t address = (uintptr_t)q;
  pthread_mutex_init(&q->mu, NULL);
  pthread_cond_init(&q->replied, NULL);
  ssize_t written;
  pthread_mutex_lock(&s->mu);
  do {
    written = s->fd < 0 ? 0 : write(s->fd, &address, sizeof address);
  } while (written < 0 && errno == EINTR);
  pthread_mutex_unlock(&s->mu);
  if (written == sizeof address) {
    pthread_mutex_lock(&q->mu);
    while (!q->has_reply) pthread_cond_wait(&q->replied, &q->mu);
    pthread_mutex_unlock(&q->mu);
  } else {
    q->code = CANCELLED;
  }
  pthread_cond_destroy(&q->replied);
  pthread_mutex_destroy(&q->mu);
}

// Sends q and returns NULL, or the error of the reply.
static void *ask(tps_request *q, void *user_arg, void *callback_error) {
  tps_send_request(user_arg, q);
  if (q->code == 0) return NULL;
  void *e = (*(error_maker *)callback_error)(q->code, q->p ? q->p : "", q->n);
  free(q->p);
  return e;
}

static void delete_value(char *value) { free(value); }

static void *get(tps_KeyValueGetCallback_Args *a) {
  tps_request q = {.kind = TPS_GET, .key = {a->key, a->key_size}, .timeout_ms = a->timeout_in_ms};
  void *e = ask(&q, a->user_arg, a->callback_error);
  if (!e) a->value = q.p, a->value_size = q.n, a->value_deleter_callback = delete_value;
  return e;
}

static void *try_get(tps_KeyValueTryGetCallback_Args *a) {
  tps_request q = {.kind = TPS_TRY_GET, .key = {a->key, a->key_size}};
  void *e = ask(&q, a->user_arg, a->callback_error);
  if (!e) a->value = q.p, a->value_size = q.n, a->value_deleter_callback = delete_value;
  return e;
}

static void *put(tps_KeyValuePutCallback_Args *a) {
  tps_request q = {.kind = TPS_PUT, .key = {a->key, a->key_size}, .value = {a->value, a->value_size}};
  void *e = ask(&q, a->user_arg, a->callback_error);
  if (!e) free(q.p);
  return e;
}

void *tps_client_create(const tps_Api *api, const tps_NamedValue *opts, size_t n, tps_request_pipe *requests, void **client) {
  ARGS(Client_Create, kv_try_get_user_arg, .create_options = opts, .num_options = n);
  if (requests) {
    a.kv_get_callback = (void *)(uintptr_t)get;
    a.kv_put_callback = (void *)(uintptr_t)put;
    a.kv_try_get_callback = (void *)(uintptr_t)try_get;
    a.kv_get_user_arg = a.kv_put_user_arg = a.kv_try_get_user_arg = requests;
  }
  void *e = CALL(Client_Create);
  *client = e ? NULL : a.client;
  return e;
}
