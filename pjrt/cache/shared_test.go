package cache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/storage"
)

// bucket is a store in a directory that counts Put calls. All methods return fail if it is not nil.
type bucket struct {
	storage.Store
	mu   sync.Mutex
	puts int
	fail error
}

func newBucket(t *testing.T, dir string) *bucket {
	t.Helper()
	store, err := storage.Directory(dir)
	require.NoError(t, err)
	return &bucket{Store: store}
}

func (b *bucket) failing(err error) { b.mu.Lock(); b.fail = err; b.mu.Unlock() }

func (b *bucket) Put(ctx context.Context, name string, opts storage.PutOptions, write func(w io.Writer) error) error {
	b.mu.Lock()
	err := b.fail
	b.puts++
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.Store.Put(ctx, name, opts, write)
}

func (b *bucket) Open(ctx context.Context, name string) (storage.Object, error) {
	b.mu.Lock()
	err := b.fail
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return b.Store.Open(ctx, name)
}

func TestSharedStore(t *testing.T) {
	client := plugintest.CPU(t, 2)
	place := t.TempDir()
	b := newBucket(t, place)
	key, err := cache.StoreSigningKey(t.Context(), b)
	require.NoError(t, err)
	again, err := cache.StoreSigningKey(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, key, again)
	host := func() *cache.Cache { return open(t, t.TempDir(), cache.Options{Store: b, SigningKey: key}) }

	b.puts = 0
	first := host()
	compileAndRun(t, first, client, 1)
	assert.Equal(t, cache.Stats{Misses: 1}, first.Stats())
	second := host()
	compileAndRun(t, second, client, 1)
	assert.Equal(t, cache.Stats{Hits: 1, Downloads: 1}, second.Stats())
	compileAndRun(t, second, client, 1)
	assert.Equal(t, cache.Stats{Hits: 2, Downloads: 1}, second.Stats(), "loaded from the directory")
	assert.Equal(t, 1, b.puts, "written once")

	// If hosts compile at the same time, one of them writes the entry, and none fails.
	all := make([]*cache.Cache, 4)
	var wait sync.WaitGroup
	for i := range all {
		all[i] = host()
		wait.Go(func() { compileAndRun(t, all[i], client, 2) })
	}
	wait.Wait()
	entries, err := b.List(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, entries, 3, "two programs and the key")
	for _, c := range all {
		assert.Zero(t, c.Stats().WriteErrors)
	}
}

func TestDamagedEntryInStoreIsReplaced(t *testing.T) {
	client := plugintest.CPU(t, 2)
	place := t.TempDir()
	b := newBucket(t, place)
	key := bytes.Repeat([]byte{7}, 32)
	var log bytes.Buffer
	host := func() *cache.Cache {
		return open(t, t.TempDir(), cache.Options{Store: b, SigningKey: key,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	compileAndRun(t, host(), client, 1)
	paths, err := filepath.Glob(filepath.Join(place, "*"))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	data, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(paths[0], data, 0o600))

	c := host()
	compileAndRun(t, c, client, 1)
	assert.Equal(t, cache.Stats{Misses: 1, Corrupt: 1}, c.Stats())
	assert.Contains(t, log.String(), "not usable")
	c = host()
	compileAndRun(t, c, client, 1)
	assert.Equal(t, cache.Stats{Hits: 1, Downloads: 1}, c.Stats(), "the entry was written again")

	// An unavailable store causes a compilation and a warning.
	b.failing(errors.New("no route"))
	c = host()
	compileAndRun(t, c, client, 1)
	assert.Equal(t, cache.Stats{Misses: 1, WriteErrors: 1}, c.Stats())
	assert.Contains(t, log.String(), "no route")
	_, err = cache.StoreSigningKey(t.Context(), b)
	assert.ErrorContains(t, err, "no route")
}

func TestSharedStoreRequiresKey(t *testing.T) {
	b := newBucket(t, t.TempDir())
	_, err := cache.Open(t.TempDir(), cache.Options{Store: b})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	assert.ErrorContains(t, err, "cache.StoreSigningKey")
	require.NoError(t, storage.PutBytes(t.Context(), b, "compile-cache.key", []byte("short"), storage.PutOptions{}))
	_, err = cache.StoreSigningKey(t.Context(), b)
	assert.Equal(t, errkind.DataLossError, errkind.KindOf(err))
}
