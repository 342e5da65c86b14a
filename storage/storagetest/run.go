package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// Run tests that a store follows the contract of [storage.Store]. Each call of open must return a
// new, empty store.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	ctx := context.Background()
	put := func(t *testing.T, s storage.Store, name, text string) {
		require.NoError(t, storage.PutBytes(ctx, s, name, []byte(text), storage.PutOptions{}))
	}
	read := func(t *testing.T, s storage.Store, name string) string {
		data, err := storage.ReadAll(ctx, s, name, 1<<20)
		require.NoError(t, err)
		return string(data)
	}
	names := func(t *testing.T, s storage.Store, prefix string) (all []string) {
		infos, err := s.List(ctx, prefix)
		require.NoError(t, err)
		for _, info := range infos {
			all = append(all, info.Name)
		}
		return all
	}

	t.Run("AnObjectIsWhatWasPutLast", func(t *testing.T) {
		s := open(t)
		for _, text := range []string{"one", "", "another one"} {
			put(t, s, "a/b.json", text)
			require.Equal(t, text, read(t, s, "a/b.json"))
		}
		infos, err := s.List(ctx, "")
		require.NoError(t, err)
		require.Len(t, infos, 1)
		assert.Equal(t, "a/b.json", infos[0].Name)
		assert.EqualValues(t, len("another one"), infos[0].Size)
		assert.False(t, infos[0].Modified.IsZero())
	})
	t.Run("RangesAreRead", func(t *testing.T) {
		s := open(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
		require.NoError(t, s.Put(ctx, "large", storage.PutOptions{Size: int64(len(data))}, func(w io.Writer) error {
			for at := 0; at < len(data); at += 100_000 {
				if _, err := w.Write(data[at:min(at+100_000, len(data))]); err != nil {
					return err
				}
			}
			return nil
		}))
		o, err := s.Open(ctx, "large")
		require.NoError(t, err)
		defer o.Close()
		require.EqualValues(t, len(data), o.Size())
		var all sync.WaitGroup
		for _, at := range []int{0, 1, 4095, 1 << 20, len(data) - 7} {
			all.Go(func() {
				p := make([]byte, min(70_001, len(data)-at))
				assert.NoError(t, o.ReadAt(ctx, p, int64(at)))
				assert.True(t, bytes.Equal(data[at:at+len(p)], p), "from %d on", at)
			})
		}
		all.Wait()
		require.NoError(t, o.ReadAt(ctx, nil, 3))
		assert.ErrorIs(t, o.ReadAt(ctx, make([]byte, 8), int64(len(data)-7)), io.ErrUnexpectedEOF)
		assert.ErrorIs(t, o.ReadAt(ctx, make([]byte, 1), int64(len(data)+5)), io.ErrUnexpectedEOF)
	})
	t.Run("WhatIsNotThereIsAnError", func(t *testing.T) {
		s := open(t)
		_, err := s.Open(ctx, "none")
		require.ErrorIs(t, err, storage.ErrNotExist)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.Contains(t, err.Error(), "none")
		require.NoError(t, s.Remove(ctx, "none"))
		require.Empty(t, names(t, s, ""))
		require.Empty(t, names(t, s, "folder/"))
	})
	t.Run("OneOfManyWritersPutsWhatIsToBeAbsent", func(t *testing.T) {
		s := open(t)
		var won atomic.Int32
		var all sync.WaitGroup
		winner := make(chan string, 8)
		for i := range 8 {
			all.Go(func() {
				text := fmt.Sprint("writer ", i)
				switch err := storage.PutBytes(ctx, s, "once", []byte(text), storage.PutOptions{IfAbsent: true}); {
				case err == nil:
					won.Add(1)
					winner <- text
				default:
					assert.ErrorIs(t, err, storage.ErrExists)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, won.Load())
		require.Equal(t, <-winner, read(t, s, "once"))
		require.NoError(t, s.Remove(ctx, "once"))
		require.NoError(t, storage.PutBytes(ctx, s, "once", []byte("again"), storage.PutOptions{IfAbsent: true}))
		require.Equal(t, "again", read(t, s, "once"))
	})
	t.Run("AListingHasTheNamesInOrder", func(t *testing.T) {
		s := open(t)
		for _, name := range []string{"step-2/b", "step-10/a", "step-1/x/host-0001", "step-1/a", "other"} {
			put(t, s, name, name)
		}
		require.Equal(t, []string{"other", "step-1/a", "step-1/x/host-0001", "step-10/a", "step-2/b"}, names(t, s, ""))
		require.Equal(t, []string{"step-1/a", "step-1/x/host-0001"}, names(t, s, "step-1/"))
		require.Equal(t, []string{"step-1/a", "step-1/x/host-0001", "step-10/a"}, names(t, s, "step-1"))
		require.Equal(t, []string{"step-1/x/host-0001"}, names(t, s, "step-1/x/ho"))
		require.Empty(t, names(t, s, "step-3"))
		require.NoError(t, s.Remove(ctx, "step-1/a"))
		require.Equal(t, []string{"step-1/x/host-0001"}, names(t, s, "step-1/"))
	})
	t.Run("AFailedPutPutsNothing", func(t *testing.T) {
		s := open(t)
		put(t, s, "kept", "as it was")
		broken := errors.New("the source broke")
		for _, name := range []string{"kept", "fresh"} {
			err := s.Put(ctx, name, storage.PutOptions{}, func(w io.Writer) error {
				if _, err := w.Write(make([]byte, 100_000)); err != nil {
					return err
				}
				return broken
			})
			require.ErrorIs(t, err, broken)
		}
		for _, name := range []string{"kept", "fresh"} {
			cancelled, cancel := context.WithCancel(ctx)
			defer cancel()
			err := s.Put(cancelled, name, storage.PutOptions{}, func(w io.Writer) error {
				_, err := w.Write([]byte("half"))
				cancel()
				return err
			})
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, []string{"kept"}, names(t, s, ""))
		require.Equal(t, "as it was", read(t, s, "kept"))
	})
	t.Run("NamesThatAreNoneAreErrors", func(t *testing.T) {
		s := open(t)
		for _, name := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "a\\b", ".hidden", "a\nb"} {
			require.Error(t, storage.PutBytes(ctx, s, name, nil, storage.PutOptions{}), "%q", name)
			_, err := s.Open(ctx, name)
			require.Error(t, err, "%q", name)
			require.Error(t, s.Remove(ctx, name), "%q", name)
		}
		require.Empty(t, names(t, s, ""))
	})
	t.Run("ASubIsAPart", func(t *testing.T) {
		s := open(t)
		one, two := storage.Sub(s, "one"), storage.Sub(storage.Sub(s, "two"), "deep")
		put(t, one, "x", "in one")
		put(t, two, "x", "in two")
		require.Equal(t, []string{"one/x", "two/deep/x"}, names(t, s, ""))
		require.Equal(t, []string{"x"}, names(t, two, ""))
		require.Equal(t, "in two", read(t, two, "x"))
		require.NoError(t, one.Remove(ctx, "x"))
		require.Equal(t, []string{"two/deep/x"}, names(t, s, ""))
		require.Error(t, storage.PutBytes(ctx, one, "../two/deep/x", nil, storage.PutOptions{}))
	})
}
