package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

// Each of a checkpoint's files is replaced by an object that is not a file.
func TestNothingInACheckpointHangs(t *testing.T) {
	ctx := context.Background()
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o644) }
	folder := func(path string) error { return os.Mkdir(path, 0o755) }
	link := func(path string) error {
		return errors.Join(os.WriteFile(path+".target", nil, 0o644), os.Symlink(path+".target", path))
	}
	device := func(path string) error { return os.Symlink("/dev/zero", path) }
	for what, put := range map[string]func(string) error{"a pipe": pipe, "a directory": folder, "a link": link,
		"a device": device} {
		hangtest.Within(t, func() {
			d := oldRun(t, ManagerOptions{})
			for step := int64(3); step < 6; step++ {
				require.NoError(t, d.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
				c := latest(t, d)
				of := []string{manifestName(step), partName(step, c.sharded.Save, 0), shardsName(step, c.sharded.Save, 0)}[step-3]
				path := filepath.Join(d.Dir(), of)
				require.NoError(t, os.Remove(path))
				require.NoError(t, put(path))
				require.ErrorIs(t, opened(ctx, d, step), ErrCorrupt, what)
			}
			old := filepath.Join(d.Dir(), stepName(2), variablesFile)
			require.NoError(t, os.Remove(old))
			require.NoError(t, put(old))
			var kind *PathError
			require.ErrorAs(t, opened(ctx, d, 2), &kind, what)
			c, passed, err := d.LatestIntact(ctx)
			require.NoError(t, err, what)
			require.Equal(t, int64(1), c.Step())
			require.NotEmpty(t, passed)
			require.NoError(t, c.Close())

			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, put(path))
			_, err = OpenFile(path, FileOptions{})
			require.Error(t, err, what)

			owned := newRun(t, ManagerOptions{})
			require.NoError(t, put(filepath.Join(owned.Dir(), ownerObject)))
			require.ErrorAs(t, owned.Save(ctx, 1, numbers(1), SaveOptions{}), &kind, what)
		})
	}
}

// opened opens and reads a step and closes it.
func opened(ctx context.Context, d run, step int64) error {
	c, err := d.Open(ctx, step)
	if err != nil {
		return err
	}
	return errors.Join(c.Verify(ctx), c.Close())
}

func TestATensorFileMayBeALink(t *testing.T) {
	d := oldRun(t, ManagerOptions{})
	link := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.Symlink(filepath.Join(d.Dir(), stepName(1), variablesFile), link))
	c, err := OpenFile(link, FileOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestWhatThisProcessMayNotReadIsNotPassedOver(t *testing.T) {
	require.ErrorIs(t, readError("x", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}), fs.ErrPermission)
	for err, damage := range map[error]bool{syscall.EACCES: false, syscall.EMFILE: false, syscall.ENOMEM: false,
		syscall.EIO: true, syscall.EISDIR: true, syscall.ELOOP: true} {
		assert.Equal(t, damage, errors.Is(readError("x", &fs.PathError{Op: "read", Path: "x", Err: err}), ErrCorrupt), "%v",
			err)
	}
	for kind, damage := range map[errkind.Kind]bool{errkind.UnavailableError: false, errkind.PermissionDeniedError: false,
		errkind.DeadlineExceededError: false,
		errkind.DataLossError:         true} {
		assert.Equal(t, damage, errors.Is(readError("x", errkind.New(kind, "a store's")), ErrCorrupt), "%v", kind)
	}
}
