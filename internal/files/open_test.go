package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hangtest"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	dangling := filepath.Join(dir, "dangling")
	require.NoError(t, os.WriteFile(file, []byte("abc"), 0o644))
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), dangling))
	hangtest.Within(t, func() {
		for _, path := range []string{pipe, dir, "/dev/zero", "/dev/null"} {
			_, _, err := Open(path)
			requireReason(t, err, NotRegular)
			_, _, err = OpenHere(path)
			requireReason(t, err, NotRegular)
			_, err = OpenLock(path, 0o600)
			requireReason(t, err, NotRegular)
		}
		for _, path := range []string{link, dangling} {
			_, _, err := OpenHere(path)
			requireReason(t, err, Link)
			_, err = OpenLock(path, 0o600)
			requireReason(t, err, Link)
		}
	})
	require.NoFileExists(t, filepath.Join(dir, "elsewhere"))
	_, _, err := Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	f, info, err := Open(link)
	require.NoError(t, err)
	require.EqualValues(t, 3, info.Size())
	require.NoError(t, f.Close())
	f, err = OpenLock(filepath.Join(dir, "new"), 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestWhatHasNoEndIsReadToTheLimit(t *testing.T) {
	hangtest.Within(t, func() {
		_, err := Read("/dev/zero", 1000)
		requireReason(t, err, TooLarge)
	})
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o644))
	data, err := Read(path, 1000)
	require.NoError(t, err)
	require.Len(t, data, 1000)
	_, err = Read(path, 999)
	requireReason(t, err, TooLarge)
	_, err = Read(filepath.Dir(path), 999)
	requireReason(t, err, NotRegular)
}
