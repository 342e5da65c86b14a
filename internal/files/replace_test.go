package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func content(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// requireOnlyFile checks that the directory contains only this file.
func requireOnlyFile(t *testing.T, path, text string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestReplaceIsAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Replace(path, content("one")))
	requireOnlyFile(t, path, "one")
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, Replace(path, content("two")))
	requireOnlyFile(t, path, "two")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	mistake := errors.New("mistake")
	for _, cause := range []error{mistake, syscall.ENOSPC,
		&fs.PathError{Op: "write", Path: "beside", Err: syscall.EDQUOT}} {
		err := Replace(path, func(w io.Writer) error {
			_, err := w.Write(make([]byte, 1<<20))
			require.NoError(t, err)
			return cause
		})
		require.ErrorContains(t, err, "write "+path)
		assert.NotContains(t, err.Error(), "beside")
		if cause != mistake {
			assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err))
		} else {
			assert.ErrorIs(t, err, mistake)
		}
		requireOnlyFile(t, path, "two")
	}
}

// A write or the final flush can report that the disk is full.
func TestReplaceOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("the system has no /dev/full")
	}
	for _, n := range []int{1, 1 << 20} {
		err := Replace("/dev/full", content(string(make([]byte, n))))
		require.ErrorIs(t, err, syscall.ENOSPC)
		assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err))
		require.ErrorContains(t, err, "free some space")
	}
}

func TestReplaceKeepsLinks(t *testing.T) {
	root := t.TempDir()
	path, link := filepath.Join(root, "there", "file"), filepath.Join(root, "link")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o644))
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, Replace(link, content("two")))
	requireOnlyFile(t, path, "two")
	_, err := os.Readlink(link)
	require.NoError(t, err)
}

func TestReplaceRejectsDirectoriesAndURLs(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, "gs://bucket/file"} {
		var e *Error
		require.ErrorAs(t, Replace(path, content("")), &e)
	}
	require.ErrorIs(t, Replace(filepath.Join(dir, "none", "file"), content("")), fs.ErrNotExist)
}
