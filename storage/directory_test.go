package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/storagetest"
)

func directory(t *testing.T) storage.Store {
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	return s
}

func TestDirectory(t *testing.T) { storagetest.Run(t, directory) }

// TestALargeFileIsWrittenAsItCame writes aligned and unaligned pieces, with more and fewer bytes
// than specified.
func TestALargeFileIsWrittenAsItCame(t *testing.T) {
	ctx := context.Background()
	s := directory(t)
	data := make([]byte, 20<<20+77)
	for i := range data {
		data[i] = byte(i * 31 >> 4)
	}
	for _, pieces := range [][]int{{len(data)}, {8 << 20, 8 << 20}, {4096, 3 << 20, 1, 5 << 20}, {1<<20 + 1, 2 << 20}} {
		for _, announced := range []int64{0, int64(len(data)), 9 << 20, 64 << 20} {
			require.NoError(t, s.Put(ctx, "x", storage.PutOptions{Size: announced}, func(w io.Writer) error {
				at := 0
				for i := 0; at < len(data); i++ {
					n := len(data) - at
					if i < len(pieces) {
						n = min(n, pieces[i])
					}
					if _, err := w.Write(data[at : at+n]); err != nil {
						return err
					}
					at += n
				}
				return nil
			}))
			got, err := storage.ReadAll(ctx, s, "x", 1<<30)
			require.NoError(t, err)
			require.True(t, string(data) == string(got), "%v, announced %d", pieces, announced)
		}
	}
}

func TestSweepRemovesWhatAKilledPutLeft(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	for _, name := range []string{"step-1/a/.put-X", "step-2/.put-Y"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("half"), 0o644))
	}
	require.NoError(t, storage.PutBytes(ctx, s, "step-2/whole", nil, storage.PutOptions{}))
	all, err := s.List(ctx, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	none := func(string) bool { return false }
	require.NoError(t, s.(storage.Sweeper).Sweep(ctx, "step-", func(name string) bool {
		return strings.HasPrefix(name,
			"step-")
	}))
	assert.DirExists(t, filepath.Join(dir, "step-1"))
	require.NoError(t, s.(storage.Sweeper).Sweep(ctx, "step-1/", none))
	assert.NoDirExists(t, filepath.Join(dir, "step-1"), "it is empty")
	assert.FileExists(t, filepath.Join(dir, "step-2/.put-Y"))
	require.NoError(t, s.(storage.Sweeper).Sweep(ctx, "", none))
	assert.NoFileExists(t, filepath.Join(dir, "step-2/.put-Y"))
	assert.FileExists(t, filepath.Join(dir, "step-2/whole"))
}

func TestSweepRemovesEmptyFolders(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	for _, name := range []string{"step-1/a", "step-2", "step-3/kept", "other", "step-4/.hidden"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, storage.PutBytes(ctx, s, "step-5/whole", nil, storage.PutOptions{}))
	require.NoError(t, s.(storage.Sweeper).Sweep(ctx, "step-", func(name string) bool { return name == "step-3/kept/" }))
	for name, left := range map[string]bool{"step-1": false, "step-2": false, "step-3/kept": true, "other": true,
		"step-4/.hidden": true, "step-5": true} {
		if left {
			assert.DirExists(t, filepath.Join(dir, name))
		} else {
			assert.NoDirExists(t, filepath.Join(dir, name))
		}
	}
}

// A Put that fails removes the folders that it created.
func TestAFailedPutLeavesNoFolder(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	failed := errors.New("no value")
	err = s.Put(ctx, "step-1/save/x", storage.PutOptions{}, func(io.Writer) error { return failed })
	require.ErrorIs(t, err, failed)
	err = s.Put(ctx, "step-2/save/x", storage.PutOptions{IfAbsent: true}, func(io.Writer) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestPlacesThatAreNoFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, path := range []string{"", "gs:/bucket/run", file, filepath.Join(file, "below")} {
		_, err := storage.Open(context.Background(), path)
		require.Error(t, err, "%q", path)
	}
}

// Empty folders are removed together with their last object, also while another process puts
// objects there.
func TestAPutOutlivesTheRemovalOfItsFolder(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			name := fmt.Sprint("a/b/c/d/", i)
			for range 60 {
				if !assert.NoError(t, storage.PutBytes(ctx, s, name, nil, storage.PutOptions{})) || !assert.NoError(t,
					s.Remove(ctx, name)) {
					return
				}
			}
		})
	}
	all.Wait()
}

func TestAllWhoReadOrPutHaveTheBytesOfOne(t *testing.T) {
	s := directory(t)
	got := make([]string, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			data, err := storage.ReadOrPut(t.Context(), s, "id", fmt.Append(nil, "of ", i), 100)
			assert.NoError(t, err)
			got[i] = string(data)
		})
	}
	all.Wait()
	for _, text := range got {
		assert.Equal(t, got[0], text)
	}
	data, err := storage.ReadAll(t.Context(), s, "id", 100)
	require.NoError(t, err)
	assert.Equal(t, got[0], string(data))
}
