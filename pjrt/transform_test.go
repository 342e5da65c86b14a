package pjrt_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// transforming is the source of a plugin in C that stores the registered callbacks.
// PJRT_Client_Create calls each of them with a program and returns an error with the results.
const transforming = `
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include "pjrt_c_api.h"

struct PJRT_Error { PJRT_Error_Code code; size_t n; char text[16384]; };
static PJRT_Error *fail(PJRT_Error_Code code, const char *text) {
  PJRT_Error *e = calloc(1, sizeof *e);
  e->code = code, e->n = strlen(text);
  memcpy(e->text, text, e->n);
  return e;
}
static void destroy(PJRT_Error_Destroy_Args *a) { free(a->error); }
static void message(PJRT_Error_Message_Args *a) { a->message = a->error->text, a->message_size = a->error->n; }
static PJRT_Error *code(PJRT_Error_GetCode_Args *a) { a->code = a->error->code; return NULL; }
static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *a) { (void)a; return NULL; }

typedef struct { const char *data; size_t size; } str;
typedef struct { size_t struct_size; int64_t version; void *data; void (*cleanup)(void *); bool has_error; int code; str error; str module, changed_module; bool changed; } show_args;
typedef struct callbacks { int64_t version; void (*dtor)(struct callbacks *); void (*show)(struct callbacks *,
	show_args *); } callbacks;
typedef struct { size_t struct_size; const char *name; size_t n; int stage; callbacks *callbacks; } register_args;
typedef struct { size_t struct_size; int stage; const char *name; size_t n; callbacks *callbacks; bool cleared; } clear_args;
static struct { char name[64]; int stage; callbacks callbacks; } all[128];
static int count, stale;
static callbacks late;

static PJRT_Error *add(register_args *a) {
  if (a->struct_size != 40 || a->callbacks->version != 1) return fail(3, "wrong layout");
  if (a->n == 7 && !memcmp(a->name, "refused", 7)) return fail(6, "there is one");
  memcpy(all[count].name, a->name, a->n);
  all[count].name[a->n] = 0, all[count].stage = a->stage, all[count++].callbacks = *a->callbacks;
  return NULL;
}
static PJRT_Error *clear(clear_args *a) {
  for (int i = 0; i < count; i++) {
    if (strlen(all[i].name) != a->n || memcmp(all[i].name, a->name, a->n) || all[i].stage != a->stage) continue;
    late = all[i].callbacks, stale = 1;
    memmove(all + i, all + i + 1, (size_t)(--count - i) * sizeof *all);
    a->cleared = true;
    return NULL;
  }
  return fail(5, "no such transform");
}

static void show(callbacks *of, const char *module, size_t n, char *report) {
  show_args a = {.struct_size = 113, .version = 1, .module = {module, n}};
  of->show(of, &a);
  if (a.has_error) sprintf(report + strlen(report), " error %d %.*s;", a.code, (int)a.error.size, a.error.data);
  else if (a.changed) sprintf(report + strlen(report), " changed %.*s;", (int)a.changed_module.size,
	a.changed_module.data);
  else strcat(report, " left;");
  if (a.cleanup) a.cleanup(a.data);
}

static void *often(void *report) {
  for (int round = 0; round < 50; round++)
    for (int i = 0; i < count; i++) ((char *)report)[0] = 0, show(&all[i].callbacks, "thread", 6, report);
  return NULL;
}

static PJRT_Error *create(PJRT_Client_Create_Args *a) {
  static char report[8][16384];
  (void)a;
  if (stale) { stale = 0; report[0][0] = 0; show(&late, "late", 4, report[0]); return fail(14, report[0]); }
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, often, report[i]);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  report[0][0] = 0;
  for (int i = 0; i < count; i++) {
    sprintf(report[0] + strlen(report[0]), " %s at %d", all[i].name, all[i].stage);
    show(&all[i].callbacks, "mod\0ule", 7, report[0]);
    show(&all[i].callbacks, NULL, 0, report[0]);
  }
  if (count == 1) { // what lies
    sprintf(report[0] + strlen(report[0]), " nowhere"), show(&all[0].callbacks, NULL, 7, report[0]);
    sprintf(report[0] + strlen(report[0]), " vast"), show(&all[0].callbacks, "x", (size_t)-1, report[0]);
    show_args a = {.struct_size = 8, .version = 1, .module = {NULL, 7}};
    all[0].callbacks.show(&all[0].callbacks, &a);
    strcat(report[0], a.has_error || a.changed || a.cleanup ? " short answered;" : " short left;");
  }
  return fail(14, report[0]);
}

static struct { size_t size; int type; void *next; void *add, *clear; } extension = {40, 24, NULL, add, clear};
PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.extension_start = (PJRT_Extension_Base *)&extension;
#ifdef OLD
  extension.size = 32;
#endif
#ifdef HOLE
  extension.clear = NULL;
#endif
  api.pjrt_api_version = (PJRT_Api_Version){.struct_size = PJRT_Api_Version_STRUCT_SIZE,
	.major_version = PJRT_API_MAJOR, .minor_version = PJRT_API_MINOR};
  api.PJRT_Error_Destroy = destroy, api.PJRT_Error_Message = message, api.PJRT_Error_GetCode = code;
  api.PJRT_Plugin_Initialize = initialize, api.PJRT_Client_Create = create;
  return &api;
}
`

func transformingPlugin(t *testing.T, flags ...string) *pjrt.Plugin {
	t.Helper()
	p, err := pjrt.Open(library(t, "transforming"+strings.Join(flags, ""), transforming,
		append(flags, "-std=c11", "-pthread", "-I", filepath.Dir(plugintest.Header(t)))...))
	require.NoError(t, err)
	return p
}

// applyTransforms returns the results of the registered transforms.
func applyTransforms(p *pjrt.Plugin) string {
	_, err := p.NewClient(background, pjrt.ClientOptions{})
	var e *pjrt.Error
	if errors.As(err, &e) && e.Log != "" {
		return e.Log
	}
	return err.Error()
}

func TestRegisterErrors(t *testing.T) {
	leave := pjrt.Transform{Name: "leave", Apply: func([]byte) ([]byte, error) { return nil, nil }}
	for _, p := range []*pjrt.Plugin{plugintest.Open(t, "cpu"), transformingPlugin(t, "-DOLD"),
		transformingPlugin(t, "-DHOLE")} {
		_, err := p.Register(leave)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "the plugin does not support transforms")
	}
	_, err := new(pjrt.Plugin).Register(leave)
	assert.ErrorIs(t, err, pjrt.ErrClosed)
	for _, bad := range []pjrt.Transform{{}, {Name: "x"}, {Name: "x", Apply: leave.Apply, Stage: 2},
		{Apply: leave.Apply}} {
		_, err := plugintest.Open(t, "cpu").Register(bad)
		assert.ErrorContains(t, err, "a transform needs Name, Apply and a Stage")
	}
}

func TestTransformResultsReachPlugin(t *testing.T) {
	p := transformingPlugin(t)
	register := func(name string, stage pjrt.Stage, f func([]byte) ([]byte, error)) *pjrt.Registration {
		r, err := p.Register(pjrt.Transform{Name: name, Stage: stage, Apply: f})
		require.NoError(t, err)
		return r
	}
	all := []*pjrt.Registration{
		register("leaves", pjrt.AfterScheduler, func([]byte) ([]byte, error) { return nil, nil }),
		register("empties", pjrt.BeforeScheduler, func([]byte) ([]byte, error) { return []byte{}, nil }),
		register("quotes", pjrt.BeforeScheduler,
			func(m []byte) ([]byte, error) { return fmt.Appendf(nil, "%q", m), nil }),
		register("refuses", pjrt.AfterScheduler,
			func(m []byte) ([]byte, error) { return m, fmt.Errorf("%q is not for me", m) }),
		register("silent", pjrt.AfterScheduler, func(m []byte) ([]byte, error) { return nil, errors.New("") }),
		register("panics", pjrt.BeforeScheduler, func(m []byte) ([]byte, error) { panic("a bug") }),
	}
	text := applyTransforms(p)
	for _, want := range []string{
		"leaves at 1 left; left;", "empties at 0 left; left;", `quotes at 0 changed "mod\x00ule"; changed "";`,
		`refuses at 1 error 13 "mod\x00ule" is not for me; error 13 "" is not for me;`,
		"silent at 1 error 13 ;", "panics at 0 error 13 pjrt: transform panics: it panicked: a bug",
	} {
		assert.Contains(t, text, want)
	}
	_, err := p.Register(pjrt.Transform{Name: "refused", Apply: func([]byte) ([]byte, error) { return nil, nil }})
	assert.ErrorIs(t, err, pjrt.AlreadyExists)
	assert.ErrorContains(t, err, "there is one")
	// A transform that was removed during a compilation keeps the program.
	for i, r := range all {
		require.NoError(t, r.Close(), i)
		assert.ErrorIs(t, r.Close(), pjrt.ErrClosed)
		assert.Contains(t, applyTransforms(p), " left;")
	}
	assert.NotContains(t, applyTransforms(p), " at ")
	// The plugin passes invalid programs.
	invalid := register("invalid", pjrt.AfterScheduler, func(m []byte) ([]byte, error) { return m, nil })
	const none = " error 13 the plugin passed an invalid program;"
	assert.Contains(t, applyTransforms(p), " nowhere"+none+" vast"+none+" short left;")
	require.NoError(t, invalid.Close())
	applyTransforms(p) // the removed transform
	// The limit of 64 applies to the transforms that are registered at the same time.
	for range 3 {
		var some []*pjrt.Registration
		for i := range 64 {
			some = append(some, register(fmt.Sprint(i), pjrt.AfterScheduler,
				func([]byte) ([]byte, error) { return fmt.Append(nil, i), nil }))
		}
		_, err := p.Register(pjrt.Transform{Name: "one more", Apply: func([]byte) ([]byte, error) { return nil, nil }})
		assert.ErrorIs(t, err, pjrt.ResourceExhausted)
		text := applyTransforms(p)
		for i, r := range some {
			assert.Contains(t, text, fmt.Sprintf(" %d at 1 changed %d;", i, i))
			require.NoError(t, r.Close())
		}
		applyTransforms(p) // the removed transform
	}
}

// libtpu calls transforms with the partitioned program, also on a machine without a TPU.
func TestLibtpuAppliesTransforms(t *testing.T) {
	if !inTPUChild(t) {
		return
	}
	p := plugintest.Open(t, "tpu")
	topology, err := p.NewTopology(background, "v5e:2x2", nil)
	require.NoError(t, err)
	defer topology.Close()
	compile := func() (*pjrt.Executable, error) {
		return topology.Compile(background, pjrt.Program{Code: []byte(`module @m {
func.func public @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<256x256xf32>,
	tensor<256x256xf32>) -> tensor<256x256xf32>
  %z = stablehlo.tanh %y : tensor<256x256xf32>
  return %z : tensor<256x256xf32>
}
}`), Trusted: true}, pjrt.CompileOptions{})
	}
	var before, after, next atomic.Pointer[[]byte]
	register := func(name string, stage pjrt.Stage, f func([]byte) ([]byte, error)) *pjrt.Registration {
		r, err := p.Register(pjrt.Transform{Name: name, Stage: stage, Apply: f})
		require.NoError(t, err)
		return r
	}
	seen := []*pjrt.Registration{
		register("seen", pjrt.BeforeScheduler, func(m []byte) ([]byte, error) { before.Store(&m); return nil, nil }),
		register("seen", pjrt.AfterScheduler, func(m []byte) ([]byte, error) {
			after.Store(&m)
			return bytes.ReplaceAll(m, []byte("tanh"), []byte("ceil")), nil
		}),
		register("next", pjrt.AfterScheduler, func(m []byte) ([]byte, error) { next.Store(&m); return nil, nil }),
	}
	x, err := compile()
	require.NoError(t, err)
	require.NoError(t, x.Close())
	for m, operation := range map[*atomic.Pointer[[]byte]]string{&before: "tanh", &after: "tanh", &next: "ceil"} {
		require.NotNil(t, m.Load())
		assert.Contains(t, string(*m.Load()), operation, "each transform receives the result of the previous one")
	}
	assert.NotContains(t, string(*next.Load()), "tanh")
	for _, r := range seen {
		require.NoError(t, r.Close())
	}
	for _, f := range []func([]byte) ([]byte, error){
		func([]byte) ([]byte, error) { return nil, errors.New("stopped by Go") },
		func([]byte) ([]byte, error) { panic("stopped by Go") },
	} {
		stop := register("stop", pjrt.AfterScheduler, f)
		_, err = compile()
		assert.ErrorContains(t, err, "stopped by Go")
		require.NoError(t, stop.Close())
	}
	junk := register("junk", pjrt.BeforeScheduler, func([]byte) ([]byte, error) { return []byte("\xff\xff\xff"), nil })
	_, err = compile()
	assert.ErrorContains(t, err, "HLO module")
	require.NoError(t, junk.Close())
	x, err = compile()
	require.NoError(t, err, "after all transforms are closed")
	require.NoError(t, x.Close())
}
