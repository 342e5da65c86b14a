package peers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/peers"
	"github.com/tpustrategy/tpustrategy/storage/storagetest"
)

// job opens the stores of processes whose objects are in folders.
func job(t *testing.T, dirs []string) []storage.Store {
	t.Helper()
	all, stores := make([][]byte, len(dirs)), make([]storage.Store, len(dirs))
	var told, opened sync.WaitGroup
	told.Add(len(dirs))
	for i, dir := range dirs {
		local, err := storage.Directory(dir)
		require.NoError(t, err)
		opened.Go(func() {
			stores[i], err = peers.Open(t.Context(), local, peers.Options{Process: i, Timeout: 10 * time.Second,
				Gather: func(_ context.Context, _ string, mine []byte) ([][]byte, error) {
					all[i] = mine
					told.Done()
					told.Wait()
					return all, nil
				}})
			assert.NoError(t, err)
		})
	}
	opened.Wait()
	for _, s := range stores {
		t.Cleanup(func() { _ = s.Close() })
	}
	return stores
}

func folders(t *testing.T, n int) (dirs []string) {
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	return dirs
}

func TestStore(t *testing.T) {
	for _, c := range []struct{ processes, of int }{{1, 0}, {2, 0}, {2, 1}, {4, 2}, {4, 3}} {
		storagetest.Run(t, func(t *testing.T) storage.Store { return job(t, folders(t, c.processes))[c.of] })
	}
}

func TestTheLossOfAHostLosesNoObject(t *testing.T) {
	ctx := t.Context()
	dirs := folders(t, 4)
	stores := job(t, dirs)
	put := func(process int, name, text string, opts storage.PutOptions) error {
		return storage.PutBytes(ctx, stores[process], name, []byte(text), opts)
	}
	for i := range stores {
		require.NoError(t, put(i, "step 1/host-"+string(rune('0'+i)), "part", storage.PutOptions{}))
	}
	require.NoError(t, put(3, "once", "by three", storage.PutOptions{IfAbsent: true}))
	assert.ErrorIs(t, put(1, "once", "by one", storage.PutOptions{IfAbsent: true}), storage.ErrExists)
	require.NoError(t, put(0, "last", "old", storage.PutOptions{}))
	require.NoError(t, put(2, "last", "new", storage.PutOptions{}))
	for i, s := range stores {
		text, err := storage.ReadAll(ctx, s, "last", 100)
		require.NoError(t, err)
		assert.Equal(t, "new", string(text), "process %d", i)
		require.NoError(t, s.Close())
	}

	for lost := range dirs {
		t.Run("", func(t *testing.T) {
			// The machines come back in another order, one of them new.
			var again []string
			for i := range dirs {
				if dir := dirs[(i+2)%len(dirs)]; (i+2)%len(dirs) != lost {
					copied := t.TempDir()
					require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
					again = append(again, copied)
				} else {
					again = append(again, t.TempDir())
				}
			}
			for i, s := range job(t, again) {
				all, err := s.List(t.Context(), "")
				require.NoError(t, err)
				require.Len(t, all, 6, "process %d, host %d lost", i, lost)
				for _, o := range all {
					text, err := storage.ReadAll(t.Context(), s, o.Name, 100)
					require.NoError(t, err)
					assert.Equal(t, map[string]string{"once": "by three", "last": "new"}[o.Name]+
						map[bool]string{true: "part"}[filepath.Dir(o.Name) == "step 1"], string(text), o.Name)
				}
			}
		})
	}
}

func TestAHostThatIsGoneIsNamed(t *testing.T) {
	stores := job(t, folders(t, 3))
	require.NoError(t, stores[1].Close())
	_, err := stores[0].List(t.Context(), "")
	require.NoError(t, err, "a part that cannot be listed counts as lost")
	err = storage.PutBytes(t.Context(), stores[0], "x", []byte("x"), storage.PutOptions{})
	assert.ErrorContains(t, err, "process 1 on ")
	local, err := storage.Directory(stores[0].String())
	require.NoError(t, err)
	all, err := local.List(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, all, "nothing is put by halves")
}

// TestAPartThatCannotBeReadCountsAsLost checks that the copies on the next host are used.
func TestAPartThatCannotBeReadCountsAsLost(t *testing.T) {
	ctx, dirs := t.Context(), folders(t, 3)
	stores := job(t, dirs)
	for i, s := range stores {
		require.NoError(t, storage.PutBytes(ctx, s, fmt.Sprintf("step/host-%d", i), []byte("part"), storage.PutOptions{}))
	}
	// A folder in the place of the object, and a file in the place of the folder.
	broken := filepath.Join(dirs[1], "step", "host-1")
	require.NoError(t, os.Remove(broken))
	require.NoError(t, os.Mkdir(broken, 0o700))
	for i, s := range stores {
		text, err := storage.ReadAll(ctx, s, "step/host-1", 100)
		require.NoError(t, err, "process %d", i)
		assert.Equal(t, "part", string(text))
	}
	require.NoError(t, os.RemoveAll(dirs[1]))
	require.NoError(t, os.WriteFile(dirs[1], nil, 0o600))
	for i, s := range stores {
		all, err := s.List(ctx, "")
		require.NoError(t, err, "process %d", i)
		assert.Len(t, all, 3)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dirs[2], "step", "host-1")))
	_, err := stores[0].Open(ctx, "step/host-1")
	require.Error(t, err)
	assert.NotErrorIs(t, err, storage.ErrNotExist, "it may still be there")
	assert.ErrorContains(t, err, "process 1")
}
