//go:build unix

package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// lock keeps other processes from writing to a directory until the file is closed. The
// system gives the lock up when the process ends, however it does.
func lock(dir string) (*os.File, error) {
	f, err := files.OpenLock(filepath.Join(dir, lockFile), 0o644)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: another process saves to %s; give each its own", ErrBusy, dir)
		}
		return nil, fmt.Errorf("checkpoint: locking %s: %w", dir, err)
	}
	return f, nil
}
