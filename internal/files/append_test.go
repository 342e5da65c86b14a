package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fullDisk is a file on a disk with room bytes of free space.
type fullDisk struct {
	*os.File
	room int
}

func (f *fullDisk) WriteAt(p []byte, at int64) (int, error) {
	if len(p) <= f.room {
		f.room -= len(p)
		return f.File.WriteAt(p, at)
	}
	n, _ := f.File.WriteAt(p[:f.room], at)
	f.room = 0
	return n, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
}

func TestAppendIsAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, err := OpenAppender(path, true)
	require.NoError(t, err)
	require.NoError(t, a.Append([]byte("one\n")))
	disk := &fullDisk{File: a.file.(*os.File), room: 2}
	a.file = disk
	require.ErrorIs(t, a.Append([]byte("two\n")), syscall.ENOSPC)
	content := func() string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	assert.Equal(t, "one\n", content())
	disk.room = 100
	require.NoError(t, a.Append([]byte("two\n")))
	require.NoError(t, a.Append([]byte("three\n")))
	assert.Equal(t, "one\ntwo\nthree\n", content())
	require.NoError(t, a.Truncate(8))
	require.NoError(t, a.Append([]byte("3\n")))
	require.NoError(t, a.Sync())
	data, err := a.Bytes(100)
	require.NoError(t, err)
	assert.Equal(t, "one\ntwo\n3\n", string(data))
	assert.Equal(t, int64(len(data)), a.Size())
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Append([]byte("x")), os.ErrClosed)

	_, err = OpenAppender(path, true)
	require.ErrorIs(t, err, fs.ErrExist)
	b, err := OpenAppender(path, false)
	require.NoError(t, err)
	require.NoError(t, b.Append([]byte("4\n")))
	require.NoError(t, b.Close())
	assert.Equal(t, "one\ntwo\n3\n4\n", content())
	for _, wrong := range []string{t.TempDir(), "gs://bucket/log", filepath.Join(path, "below")} {
		_, err := OpenAppender(wrong, false)
		require.Error(t, err, wrong)
	}
}
