package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// addition returns a program that adds n to four floats.
func addition(n int) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, `module @add {
  func.func @main(%%x: tensor<4xf32>) -> tensor<4xf32> {
    %%c = stablehlo.constant dense<%d.0> : tensor<4xf32>
    %%y = stablehlo.add %%x, %%c : tensor<4xf32>
    return %%y : tensor<4xf32>
  }
}`, n), Trusted: true}
}

// run runs a program with zeros as argument and returns the result.
func run(t *testing.T, client *pjrt.Client, x *pjrt.LoadedExecutable) []float32 {
	t.Helper()
	ctx := t.Context()
	in, err := client.BufferFromHost(ctx, make([]byte, 16), pjrt.F32, []int{4}, x.AddressableDevices()[0])
	require.NoError(t, err)
	defer in.Close()
	out := [][]*pjrt.Buffer{{nil}}
	require.NoError(t, x.Execute(ctx, [][]*pjrt.Buffer{{in}}, out, pjrt.ExecuteOptions{}))
	defer out[0][0].Close()
	data := make([]byte, 16)
	require.NoError(t, out[0][0].ToHost(ctx, data))
	var values []float32
	for i := range 4 {
		values = append(values, floatAt(data[4*i:]))
	}
	return values
}

func open(t *testing.T, dir string, o cache.Options) *cache.Cache {
	t.Helper()
	c, err := cache.Open(dir, o)
	require.NoError(t, err)
	return c
}

func compileAndRun(t *testing.T, c *cache.Cache, client *pjrt.Client, n int) {
	t.Helper()
	x, err := c.Compile(t.Context(), client, addition(n), pjrt.CompileOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	want := float32(n)
	assert.Equal(t, []float32{want, want, want, want}, run(t, client, x))
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, filepath.Join(dir, f.Name()))
	}
	return names
}

func TestCompileLoadsCachedProgram(t *testing.T) {
	client := plugintest.CPU(t, 2)
	dir := filepath.Join(t.TempDir(), "made", "here")
	for i := range 3 {
		c := open(t, dir, cache.Options{})
		compileAndRun(t, c, client, 3)
		want := cache.Stats{Hits: 1}
		if i == 0 {
			want = cache.Stats{Misses: 1}
		}
		assert.Equal(t, want, c.Stats())
	}
	assert.Len(t, entries(t, dir), 1)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

func TestKeyDependsOnProgramOptionsAndDevices(t *testing.T) {
	client := plugintest.CPU(t, 2)
	c := open(t, t.TempDir(), cache.Options{})
	compile := func(client *pjrt.Client, p pjrt.Program, o pjrt.CompileOptions) {
		x, err := c.Compile(t.Context(), client, p, o)
		require.NoError(t, err)
		require.NoError(t, x.Close())
	}
	compile(client, addition(1), pjrt.CompileOptions{})
	compile(client, addition(2), pjrt.CompileOptions{})
	compile(client, addition(1), pjrt.CompileOptions{DeviceAssignment: [][]int{{1}}})
	compile(client, addition(1), pjrt.CompileOptions{Overrides: map[string]any{"xla_embed_ir_in_executable": true}})
	compile(plugintest.CPU(t, 3), addition(1), pjrt.CompileOptions{})
	assert.Equal(t, cache.Stats{Misses: 5}, c.Stats())
	compile(client, addition(1), pjrt.CompileOptions{DeviceAssignment: [][]int{{1}}})
	assert.Equal(t, cache.Stats{Hits: 1, Misses: 5}, c.Stats())
	compile(client, addition(1), pjrt.CompileOptions{DumpDir: t.TempDir()})
	assert.Equal(t, cache.Stats{Hits: 1, Misses: 5}, c.Stats(), "a program with a dump is always compiled")
}

func TestDamagedEntryIsCompiledAgain(t *testing.T) {
	client := plugintest.CPU(t, 1)
	for name, damage := range map[string]func([]byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"cut":           func(b []byte) []byte { return b[:len(b)/2] },
		"header only":   func(b []byte) []byte { return b[:40] },
		"longer":        func(b []byte) []byte { return append(b, 0) },
		"a flipped bit": func(b []byte) []byte { b[len(b)-9] ^= 4; return b },
		"other magic":   func(b []byte) []byte { b[0] = 'X'; return b },
		"other key":     func(b []byte) []byte { b[30] ^= 1; return b },
		"other length":  func(b []byte) []byte { b[22+64] ^= 1; return b },
		"noise":         func([]byte) []byte { return bytes.Repeat([]byte("noise"), 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			dir := t.TempDir()
			compileAndRun(t, open(t, dir, cache.Options{}), client, 5)
			path := entries(t, dir)[0]
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(b), 0o600))
			c := open(t, dir, cache.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			compileAndRun(t, c, client, 5)
			assert.Equal(t, cache.Stats{Misses: 1, Corrupt: 1}, c.Stats())
			assert.Contains(t, log.String(), "corrupt entry")
			compileAndRun(t, c, client, 5)
			assert.Equal(t, int64(1), c.Stats().Hits, "the entry was replaced")
		})
	}
}

func TestEntryThatPluginCannotLoadIsCompiledAgain(t *testing.T) {
	client := plugintest.CPU(t, 1)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	compileAndRun(t, c, client, 5)
	path := entries(t, dir)[0]
	require.NoError(t, cache.Rewrite(c, path, []byte("a valid entry without a program")))
	compileAndRun(t, c, client, 5)
	assert.Equal(t, cache.Stats{Misses: 2, Corrupt: 1}, c.Stats())
}

func TestCompileWithUnwritableDirectory(t *testing.T) {
	client := plugintest.CPU(t, 1)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	compileAndRun(t, c, client, 5)
	assert.Equal(t, int64(1), c.Stats().WriteErrors)
	_, err := cache.Open(dir, cache.Options{})
	require.Error(t, err)
	_, err = cache.Open("", cache.Options{})
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func TestCompileReturnsCompilerErrors(t *testing.T) {
	client := plugintest.CPU(t, 1)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	_, err := c.Compile(t.Context(), client, pjrt.Program{Code: []byte("no program"), Trusted: true},
		pjrt.CompileOptions{})
	var refused *pjrt.Error
	require.ErrorAs(t, err, &refused)
	_, err = c.Compile(t.Context(), client, addition(1), pjrt.CompileOptions{Partitions: 9})
	var options *pjrt.CompileError
	require.ErrorAs(t, err, &options)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Compile(canceled, client, addition(1), pjrt.CompileOptions{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, entries(t, dir))
}

func TestTrimRemovesLeastRecentlyUsedEntries(t *testing.T) {
	client := plugintest.CPU(t, 1)
	dir := t.TempDir()
	compileAndRun(t, open(t, dir, cache.Options{}), client, 1)
	info, err := os.Stat(entries(t, dir)[0])
	require.NoError(t, err)
	c := open(t, dir, cache.Options{MaxBytes: 2*info.Size() + info.Size()/2})
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(entries(t, dir)[0], old, old))
	compileAndRun(t, c, client, 2)
	foreign, left := filepath.Join(dir, "README"), filepath.Join(dir, ".writing-1")
	for _, path := range []string{foreign, left} {
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600))
		require.NoError(t, os.Chtimes(path, old, old.Add(-time.Hour)))
	}
	compileAndRun(t, c, client, 1) // program 2 is now the least recently used
	require.NoError(t, os.Chtimes(newestEntry(t, dir, foreign, left, 1, client), time.Now(), time.Now()))
	compileAndRun(t, c, client, 3)
	assert.FileExists(t, foreign, "the file is not an entry")
	assert.NoFileExists(t, left, "an abandoned temporary file")
	before := c.Stats()
	compileAndRun(t, c, client, 3)
	assert.Equal(t, before.Hits+1, c.Stats().Hits, "the newest entry is kept")
	assert.Len(t, entries(t, dir), 3, "two programs and the foreign file")
	unbounded := open(t, dir, cache.Options{MaxBytes: -1})
	for n := range 6 {
		compileAndRun(t, unbounded, client, n)
	}
	assert.Len(t, entries(t, dir), 7)
	tiny := open(t, t.TempDir(), cache.Options{MaxBytes: 10})
	compileAndRun(t, tiny, client, 1)
	assert.Empty(t, entries(t, tiny.Dir()))
}

// newestEntry returns the most recently used entry.
func newestEntry(t *testing.T, dir, foreign, left string, _ int, _ *pjrt.Client) string {
	t.Helper()
	newest, at := "", time.Time{}
	for _, path := range entries(t, dir) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		if path != foreign && path != left && info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}
	}
	return newest
}

func TestConcurrentProcessesAndGoroutines(t *testing.T) {
	dir := t.TempDir()
	if shared := os.Getenv("CACHE_TEST_DIR"); shared != "" {
		dir = shared
	}
	client := plugintest.CPU(t, 1)
	var wait sync.WaitGroup
	if !plugintest.InChild(t) {
		for range 2 {
			wait.Go(func() {
				out, err := plugintest.Child(t, "CACHE_TEST_DIR="+dir)
				assert.NoError(t, err, out)
			})
		}
	}
	c := open(t, dir, cache.Options{MaxBytes: 1 << 20})
	for g := range 2 {
		wait.Go(func() {
			for i := range 8 {
				compileAndRun(t, c, client, (g+i)%5)
			}
		})
	}
	wait.Wait()
	stats := c.Stats()
	assert.Equal(t, int64(16), stats.Hits+stats.Misses)
	assert.Zero(t, stats.Corrupt)
	assert.Zero(t, stats.WriteErrors)
	if !plugintest.InChild(t) { // all other processes have ended, so there are no temporary files
		assert.Len(t, entries(t, dir), 5)
	}
}

func TestZeroCache(t *testing.T) {
	var c cache.Cache
	_, err := c.Compile(t.Context(), plugintest.CPU(t, 1), addition(1), pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
	_, err = c.CompileTopology(t.Context(), nil, addition(1), pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
}
