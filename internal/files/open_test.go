package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

func TestOpenRejectsSpecialFiles(t *testing.T) {
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
			_, _, err = OpenNoFollow(path)
			requireReason(t, err, NotRegular)
			_, err = OpenFileNoFollow(path, os.O_RDWR|os.O_CREATE, 0o600)
			requireReason(t, err, NotRegular)
		}
		for _, path := range []string{link, dangling} {
			_, _, err := OpenNoFollow(path)
			requireReason(t, err, IsLink)
			_, err = OpenFileNoFollow(path, os.O_RDWR|os.O_CREATE, 0o600)
			requireReason(t, err, IsLink)
		}
	})
	require.NoFileExists(t, filepath.Join(dir, "elsewhere"))
	_, _, err := Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	f, info, err := Open(link)
	require.NoError(t, err)
	require.EqualValues(t, 3, info.Size())
	require.NoError(t, f.Close())
	f, err = OpenFileNoFollow(filepath.Join(dir, "new"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestCreateBesideReplacesFile(t *testing.T) {
	dir := t.TempDir()
	victim, beside := filepath.Join(dir, "victim"), filepath.Join(dir, "beside")
	require.NoError(t, os.WriteFile(victim, []byte("abc"), 0o644))
	for name, plant := range map[string]func() error{
		"nothing": func() error { return nil },
		"a file":  func() error { return os.WriteFile(beside, []byte("longer than the new contents"), 0o644) },
		"a link":  func() error { return os.Symlink(victim, beside) },
		"a pipe":  func() error { return syscall.Mkfifo(beside, 0o644) },
	} {
		require.NoError(t, plant(), name)
		hangtest.Within(t, func() {
			f, err := CreateNoFollow(beside, 0o644)
			require.NoError(t, err, name)
			_, err = f.WriteString("new")
			require.NoError(t, errors.Join(err, f.Close()), name)
		})
		for path, want := range map[string]string{victim: "abc", beside: "new"} {
			text, err := os.ReadFile(path)
			require.NoError(t, err, name)
			require.Equal(t, want, string(text), name)
		}
		require.NoError(t, os.Remove(beside))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(beside, "x"), 0o755))
	_, err := CreateNoFollow(beside, 0o644)
	require.Error(t, err)
	_, err = CreateNoFollow("gs://bucket/x", 0o644)
	requireReason(t, err, IsURL)
}

func TestDirOpensOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("abc"), 0o644))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	for _, name := range []string{"file", "link"} {
		data, err := fs.ReadFile(Dir(dir), name)
		require.NoError(t, err)
		require.Equal(t, "abc", string(data))
	}
	hangtest.Within(t, func() {
		f, err := Dir(dir).Open("pipe")
		requireReason(t, err, NotRegular)
		require.Nil(t, f)
	})
	info, err := fs.Stat(Dir(dir), "pipe")
	require.NoError(t, err)
	require.Equal(t, "a pipe", DescribeType(info.Mode()))
	_, err = Dir(dir).Open("../x")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = fs.Stat(Dir(dir), "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadLimit(t *testing.T) {
	hangtest.Within(t, func() {
		_, err := ReadFile("/dev/zero", 1000)
		e := requireReason(t, err, NotRegular)
		require.Equal(t, "a device", e.Found)
	})
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o644))
	data, err := ReadFile(path, 1000)
	require.NoError(t, err)
	require.Len(t, data, 1000)
	_, err = ReadFile(path, 999)
	requireReason(t, err, TooLarge)
	_, err = ReadFile(filepath.Dir(path), 999)
	requireReason(t, err, NotRegular)
}
