package pjrt_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestStartProfileWithoutProfiler(t *testing.T) {
	_, err := plugintest.Open(t, "cpu").StartProfile()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "the plugin has no profiler")
	_, err = new(pjrt.Plugin).StartProfile()
	assert.ErrorIs(t, err, pjrt.ErrClosed)
}

// The profiler of libtpu also works without a TPU, and then records only host threads.
func TestLibtpuProfile(t *testing.T) {
	if !inTPUChild(t) {
		return
	}
	p := plugintest.Open(t, "tpu")
	for range 3 {
		profile, err := p.StartProfile()
		require.NoError(t, err)
		data, err := profile.Stop(background)
		require.NoError(t, err)
		planes := 0
		for f, err := range protoint.Fields(data[:len(data)-1]) {
			require.NoError(t, err)
			if f.Number == 1 {
				planes++
			}
		}
		assert.Positive(t, planes, "%x", data)
		_, err = profile.Stop(background)
		assert.ErrorIs(t, err, pjrt.ErrClosed)
	}
}

// profiler returns a plugin with a profiler. fault selects the call that fails.
func profiler(t *testing.T, fault string) *pjrt.Plugin {
	t.Helper()
	p, err := pjrt.Open(library(t, fault, `
#include <stddef.h>
#include <string.h>
static const char *failed = "`+fault+`";
struct message { size_t size; void *priv; void *error; const char *text; size_t n; };
struct code { size_t size; void *priv; void *error; int code; };
struct collect { size_t size; void *profiler; const char *bytes; size_t n; };
struct make { size_t size; const char *options; size_t n; void *profiler; };
static int error, profiler, live;
static void *call(const char *name) { return strcmp(failed, name) ? NULL : &error; }
static void drop(void *a) {}
static void message(struct message *m) { m->text = failed; m->n = strlen(failed); }
static void *code(struct code *c) { c->code = 14; return NULL; }
static void *create(struct make *m) { m->profiler = &profiler; live++; return call("create"); }
static void *destroy(void *a) { live--; return call("destroy"); }
static void *start(void *a) { return live == 1 ? call("start") : &error; }
static void *stop(void *a) { return call("stop"); }
static void *collect(struct collect *c) {
  if (strcmp(failed, "nothing")) { c->bytes = "data"; c->n = 4; }
  return call("collect");
}
static struct { size_t size; void *priv; void *f[8]; } table = {80, NULL,
	{drop, message, code, create, destroy, start, stop, collect}};
static struct { size_t size; int type; void *next; void *table; } short_one = {20, 1, NULL, &table},
	extension = {32, 1, NULL, &table};
static struct { size_t size; void *ext; size_t vsize; void *vext; int major,
	minor; void *slots[120]; } api = {40 + 8 * 120, &extension, 24, NULL, 0, 81};
static void *initialize(void *a) { return NULL; }
void *GetPjrtApi(void) {
  if (!strcmp(failed, "short")) api.ext = &short_one;
  if (!strcmp(failed, "null")) extension.table = NULL;
  if (!strcmp(failed, "old")) table.size = 72;
  if (!strcmp(failed, "hole")) table.f[7] = NULL;
  api.slots[3] = initialize;
  return &api;
}`))
	require.NoError(t, err)
	return p
}

func TestProfilerErrors(t *testing.T) {
	for _, fault := range []string{"short", "null", "old", "hole"} {
		_, err := profiler(t, fault).StartProfile()
		assert.ErrorIs(t, err, errors.ErrUnsupported, "%s: %v", fault, err)
	}
	for _, fault := range []string{"create", "start"} {
		_, err := profiler(t, fault).StartProfile()
		assert.ErrorIs(t, err, pjrt.Unavailable, fault)
		assert.ErrorContains(t, err, fault)
	}
	for _, fault := range []string{"stop", "collect", "destroy", "nothing"} {
		p := profiler(t, fault)
		for range 2 { // a failed recording must not prevent the next one
			profile, err := p.StartProfile()
			require.NoError(t, err, fault)
			data, err := profile.Stop(background)
			switch fault {
			case "destroy":
				assert.Equal(t, "data", string(data))
				assert.NoError(t, err)
			case "nothing":
				assert.Empty(t, data)
				assert.NoError(t, err)
			default:
				assert.ErrorIs(t, err, pjrt.Unavailable, fault)
				assert.ErrorContains(t, err, fault)
			}
		}
	}
}
