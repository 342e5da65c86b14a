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

func TestTrustRejectsFilesThatOthersCanModify(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	folder, file := filepath.Join(root, "folder"), filepath.Join(root, "folder", "file")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	me := Trust{}.WithProcess()
	real, err := me.CheckFile(file)
	require.NoError(t, err)
	require.Equal(t, file, real)
	for path, modes := range map[string]struct{ bad, good []fs.FileMode }{
		file:   {[]fs.FileMode{0o666, 0o777, 0o602}, []fs.FileMode{0o644, 0o600, 0o755, 0o444, 0o664}},
		folder: {[]fs.FileMode{0o777, 0o757}, []fs.FileMode{0o755, 0o700, 0o775, 0o777 | fs.ModeSticky}},
		root:   {[]fs.FileMode{0o777}, []fs.FileMode{0o755}},
	} {
		for _, mode := range modes.bad {
			require.NoError(t, os.Chmod(path, mode))
			_, err := me.CheckFile(file)
			e := requireReason(t, err, OthersCanWrite)
			require.Equal(t, path, e.Path)
			require.ErrorContains(t, err, "chmod o-w "+path)
		}
		for _, mode := range modes.good {
			require.NoError(t, os.Chmod(path, mode))
			_, err := me.CheckFile(file)
			require.NoError(t, err, "%s %v", path, mode)
		}
	}
	require.NoError(t, os.Chmod(folder, 0o777|fs.ModeSticky))
	_, err = me.CheckDirectory(folder, false)
	requireReason(t, err, OthersCanWrite)
	_, err = me.CheckDirectory(folder, true)
	require.NoError(t, err)
	_, err = me.CheckDirectory(file, true)
	requireReason(t, err, NotDirectory)
	require.NoError(t, os.Chmod(folder, 0o755))
	_, err = me.CheckDirectory(file, false)
	requireReason(t, err, NotDirectory)
	_, err = me.CheckFile(folder)
	requireReason(t, err, NotRegular)

	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink("folder/../folder", link))
	real, err = me.CheckFile(filepath.Join(link, "file"))
	require.NoError(t, err)
	require.Equal(t, file, real)
	loop := filepath.Join(root, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	_, err = me.CheckFile(loop)
	require.ErrorIs(t, err, syscall.ELOOP)
}

func TestTrustRejectsFilesOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the owner of a file requires root")
	}
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	me := Trust{}.WithProcess()
	for _, path := range []string{file, root} {
		require.NoError(t, os.Chown(path, 4242, 4242))
		_, err := me.CheckFile(file)
		e := requireReason(t, err, OtherOwner)
		require.Equal(t, path, e.Path)
		require.ErrorContains(t, err, "4242")
		_, err = Trust{Owners: []int{4242}}.WithProcess().CheckFile(file)
		require.NoError(t, err)
		require.NoError(t, os.Chown(path, 0, 0))
	}
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, os.Lchown(link, 4242, 4242))
	_, err := me.CheckFile(link)
	requireReason(t, err, OtherOwner)

	// A process trusts the files of root and of its own groups.
	user := Trust{User: 4242, Groups: []int{4242, 2000}}
	_, err = user.CheckFile(file)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(file, 0o664))
	for group, want := range map[int]bool{0: true, 50: true, 2000: true, 4242: true, 3000: false} {
		require.NoError(t, os.Chown(file, 0, group))
		_, err = user.CheckFile(file)
		assert.Equal(t, want, err == nil, "group %d: %v", group, err)
	}
}
