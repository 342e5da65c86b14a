package cache_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

func TestDefaultKeyIsPrivate(t *testing.T) {
	client := plugintest.CPU(t, 1)
	home := setHome(t)
	dir := t.TempDir()
	// Concurrent calls must create only one key.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _, err := cache.Open(dir, cache.Options{}); assert.NoError(t, err) })
	}
	all.Wait()
	path := filepath.Join(home, ".config", "tpustrategy", "compile-cache.key")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	assert.EqualValues(t, 32, info.Size())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1)
	compileAndRun(t, open(t, dir, cache.Options{}), client, 1)
	again := open(t, dir, cache.Options{SigningKeyFile: path})
	compileAndRun(t, again, client, 1)
	assert.EqualValues(t, 1, again.Stats().Hits)

	require.NoError(t, os.Chmod(path, 0o644))
	openFails(t, dir, cache.Options{}, "other users can read it", "chmod 600 "+path)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Truncate(path, 3))
	_, err = cache.Open(dir, cache.Options{})
	require.ErrorContains(t, err, "3 bytes")
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	openFails(t, dir, cache.Options{}, "pipe")
	_, err = cache.Open(dir, cache.Options{SigningKey: []byte("short")})
	require.Error(t, err)
	_, err = cache.Open(dir, cache.Options{SigningKey: make([]byte, 32), SigningKeyFile: path})
	require.Error(t, err)
}

func TestKeyWithoutHomeDirectory(t *testing.T) {
	client := plugintest.CPU(t, 1)
	for name, home := range map[string]string{"none": "", "no folder": "/dev/null"} {
		t.Setenv("HOME", home)
		t.Setenv("XDG_CONFIG_HOME", "")
		dir := t.TempDir()
		for i := range 2 {
			var log bytes.Buffer
			c := open(t, dir, cache.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			compileAndRun(t, c, client, 1)
			assert.EqualValues(t, i, c.Stats().Hits, name)
			assert.Contains(t, log.String(), "stores its key with its entries", name)
		}
	}
}
