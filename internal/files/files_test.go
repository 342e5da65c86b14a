package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func requireReason(t *testing.T, err error, want Reason) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Reason, "%v", err)
	return e
}

func TestURLsAreNoPaths(t *testing.T) {
	for _, url := range []string{"gs://bucket/run", "s3://b", "GS://b", "https://x/y", "file:///tmp/x", "my-scheme+2.x://x", "gs:/bucket", filepath.Join("gs://bucket", "run"), "hdfs:/x"} {
		err := Local(url)
		requireReason(t, err, URL)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, _, err = Open(url)
		requireReason(t, err, URL)
		_, err = Read(url, 1)
		requireReason(t, err, URL)
		_, err = Trust{}.OfProcess().File(url)
		requireReason(t, err, URL)
	}
	for _, path := range []string{"", "a", "/a:/b", "./gs://bucket", "run:1/x", "run:/x", "c:/windows", "c://x", "a/gs://b", "://x", "1s://x"} {
		assert.NoError(t, Local(path), path)
	}
}

// within fails the test if f hangs.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	dangling := filepath.Join(dir, "dangling")
	require.NoError(t, os.WriteFile(file, []byte("abc"), 0o644))
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), dangling))
	within(t, func() {
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
	within(t, func() {
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

func TestWhatOthersCanChangeIsNotTrusted(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	folder, file := filepath.Join(root, "folder"), filepath.Join(root, "folder", "file")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	me := Trust{}.OfProcess()
	real, err := me.File(file)
	require.NoError(t, err)
	require.Equal(t, file, real)
	for path, modes := range map[string]struct{ bad, good []fs.FileMode }{
		file:   {[]fs.FileMode{0o666, 0o777, 0o602}, []fs.FileMode{0o644, 0o600, 0o755, 0o444, 0o664}},
		folder: {[]fs.FileMode{0o777, 0o757}, []fs.FileMode{0o755, 0o700, 0o775, 0o777 | fs.ModeSticky}},
		root:   {[]fs.FileMode{0o777}, []fs.FileMode{0o755}},
	} {
		for _, mode := range modes.bad {
			require.NoError(t, os.Chmod(path, mode))
			_, err := me.File(file)
			e := requireReason(t, err, Writable)
			require.Equal(t, path, e.Path)
			require.ErrorContains(t, err, "chmod o-w "+path)
		}
		for _, mode := range modes.good {
			require.NoError(t, os.Chmod(path, mode))
			_, err := me.File(file)
			require.NoError(t, err, "%s %v", path, mode)
		}
	}
	require.NoError(t, os.Chmod(folder, 0o777|fs.ModeSticky))
	_, err = me.Directory(folder, false)
	requireReason(t, err, Writable)
	_, err = me.Directory(folder, true)
	require.NoError(t, err)
	_, err = me.Directory(file, true)
	requireReason(t, err, NotDirectory)
	require.NoError(t, os.Chmod(folder, 0o755))
	_, err = me.Directory(file, false)
	requireReason(t, err, NotDirectory)
	_, err = me.File(folder)
	requireReason(t, err, NotRegular)

	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink("folder/../folder", link))
	real, err = me.File(filepath.Join(link, "file"))
	require.NoError(t, err)
	require.Equal(t, file, real)
	loop := filepath.Join(root, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	_, err = me.File(loop)
	require.ErrorIs(t, err, syscall.ELOOP)
}

func TestOthersFilesAreNotTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away takes root")
	}
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	me := Trust{}.OfProcess()
	for _, path := range []string{file, root} {
		require.NoError(t, os.Chown(path, 4242, 4242))
		_, err := me.File(file)
		e := requireReason(t, err, Foreign)
		require.Equal(t, path, e.Path)
		require.ErrorContains(t, err, "4242")
		_, err = Trust{Owners: []int{4242}}.OfProcess().File(file)
		require.NoError(t, err)
		require.NoError(t, os.Chown(path, 0, 0))
	}
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, os.Lchown(link, 4242, 4242))
	_, err := me.File(link)
	requireReason(t, err, Foreign)

	// A user's process takes what is root's, and groups that it is in.
	user := Trust{User: 4242, Groups: []int{4242, 2000}}
	_, err = user.File(file)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(file, 0o664))
	for group, want := range map[int]bool{0: true, 50: true, 2000: true, 4242: true, 3000: false} {
		require.NoError(t, os.Chown(file, 0, group))
		_, err = user.File(file)
		assert.Equal(t, want, err == nil, "group %d: %v", group, err)
	}
}
