package pjrt_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return names
}

// library compiles C source to a shared library and returns its path.
func library(t *testing.T, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o644))
	out, err := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", so, c}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return so
}

// fake compiles a plugin in C. Macros define its version, the size of its table and its failures.
func fake(t *testing.T, name string, define ...string) string {
	t.Helper()
	return library(t, name, `
#include <stddef.h>
#include <string.h>
#ifndef MAJOR
#define MAJOR 0
#endif
#ifndef MINOR
#define MINOR 81
#endif
#ifndef SLOTS
#define SLOTS 120
#endif
struct api { size_t size; void *ext; size_t vsize; void *vext; int major, minor; void *slots[SLOTS]; };
static struct api table = { .size = 40 + 8 * SLOTS, .vsize = 24, .major = MAJOR, .minor = MINOR };
struct message { size_t size; void *ext; void *error; const char *text; size_t n; };
static int error;
static void destroy(void *a) {}
static void message(struct message *m) { 
#ifdef LOCKED
  m->text = "cannot get the multi-process lockfile";
#else
  m->text = "no such\ndevice today";
#endif
  m->n = strlen(m->text); }
static void *code(void *a) { ((int *)a)[6] = 14; return NULL; }
static void *initialize(void *a) {
#ifdef FAIL
  return &error;
#else
  return NULL;
#endif
}
void *GetPjrtApi(void) {
#ifdef EMPTY
  return NULL;
#endif
#ifdef TINY
  table.size = 24;
  return &table;
#endif
  table.slots[0] = destroy; table.slots[1] = message; table.slots[2] = code; table.slots[3] = initialize;
  return &table;
}`, define...)
}

func TestOpenRejectsInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o755))
		return path
	}
	plain := library(t, "plain", "int answer(void) { return 42; }")
	image, err := os.ReadFile(plain)
	require.NoError(t, err)
	wrongArch := append([]byte{}, image...)
	wrongArch[18] = 0x15 // e_machine: PowerPC 64
	object := append([]byte{}, image...)
	object[16] = 1 // e_type: relocatable
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	real, err := os.Open(plugintest.Path(t, "cpu"))
	require.NoError(t, err)
	defer real.Close()
	start := make([]byte, 1<<20)
	_, err = real.ReadAt(start, 0)
	require.NoError(t, err)
	valid, err := os.ReadFile(fake(t, "valid"))
	require.NoError(t, err)

	for name, c := range map[string]struct {
		path   string
		reason pjrt.PluginReason
	}{
		"missing":                      {filepath.Join(dir, "none.so"), pjrt.PluginMissing},
		"no name":                      {"", pjrt.PluginNotFile}, // the working directory
		"a directory":                  {dir, pjrt.PluginNotFile},
		"a pipe":                       {pipe, pjrt.PluginNotFile},
		"empty":                        {write("empty.so", nil), pjrt.PluginNotLibrary},
		"text":                         {write("text.so", []byte("#!/bin/sh\n")), pjrt.PluginNotLibrary},
		"ELF magic and no more":        {write("magic.so", []byte("\x7fELF")), pjrt.PluginTruncated},
		"ELF header and no more":       {write("head.so", valid[:64]), pjrt.PluginTruncated},
		"the first half of a plugin":   {write("half.so", valid[:len(valid)/2]), pjrt.PluginTruncated},
		"the start of the real plugin": {write("start.so", start), pjrt.PluginTruncated},
		"another machine's":            {write("arch.so", wrongArch), pjrt.PluginWrongArch},
		"an object file":               {write("object.so", object), pjrt.PluginNotLibrary},
		"a library without GetPjrtApi": {plain, pjrt.PluginNoEntry},
		"GetPjrtApi only used": {library(t, "uses",
			"void *GetPjrtApi(void); void *f(void) { return GetPjrtApi(); }"), pjrt.PluginNoEntry},
		"an undefined symbol": {library(t, "undefined",
			"void nowhere(void); void *GetPjrtApi(void) { nowhere(); return 0; }"), pjrt.PluginNotLoaded},
		"no table":                    {fake(t, "null", "-DEMPTY"), pjrt.PluginBadTable},
		"a table smaller than a head": {fake(t, "tiny", "-DTINY"), pjrt.PluginBadTable},
		"too old":                     {fake(t, "old", "-DMINOR=40"), pjrt.PluginVersion},
		"the next major version":      {fake(t, "major", "-DMAJOR=1", "-DMINOR=0"), pjrt.PluginVersion},
		"initialize fails":            {fake(t, "fails", "-DFAIL"), pjrt.PluginInitialize},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pjrt.Open(c.path)
			var pe *pjrt.PluginError
			require.ErrorAs(t, err, &pe)
			assert.Equal(t, c.reason, pe.Reason, "%v", err)
			assert.NotEmpty(t, pe.Path)
		})
	}
	_, err = pjrt.Open(filepath.Join(dir, "none.so"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = pjrt.Open(fake(t, "fails2", "-DFAIL"))
	require.ErrorIs(t, err, pjrt.Unavailable, "the error code of the plugin")
	_, err = pjrt.Open(fake(t, "locked", "-DFAIL", "-DLOCKED"))
	require.ErrorContains(t, err, "ALLOW_MULTIPLE_LIBTPU_LOAD=1", "a hint for a TPU that is in use")
}

func TestPluginWithShortTableReturnsErrUnsupported(t *testing.T) {
	for name, path := range map[string]string{"nil slots": fake(t, "nilslots"),
		"a table of four slots": fake(t, "four", "-DSLOTS=4", "-DMINOR=57")} {
		t.Run(name, func(t *testing.T) {
			p, err := pjrt.Open(path)
			require.NoError(t, err)
			assert.Empty(t, p.Attributes())
			assert.Empty(t, p.Extensions())
			_, err = p.NewClient(background, pjrt.ClientOptions{})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			_, err = p.NewTopology(background, "v5e:2x2", nil)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			_, err = p.LoadTopology(background, []byte("x"))
			require.ErrorIs(t, err, errors.ErrUnsupported)
			var pe *pjrt.Error
			require.ErrorAs(t, err, &pe)
			assert.Equal(t, 75, pe.NeedsMinor)
		})
	}
}

func TestOpenSameFileTwice(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	a, err := pjrt.Open(path)
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link.so")
	require.NoError(t, os.Symlink(path, link))
	b, err := pjrt.Open(link)
	require.NoError(t, err)
	assert.Same(t, a, b)
}
