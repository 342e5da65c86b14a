//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// lock keeps other processes from writing to a directory until the file is closed. The system gives
// the lock up when the process ends, however it does.
func lock(dir string) (*os.File, error) {
	f, err := files.OpenOwn(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, doing("lock", "", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &errkind.Fault{Match: ErrBusy, Reason: "another process saves to " + dir, Hint: "give each process a directory of its own"}
		}
		return nil, doing("lock", dir, err)
	}
	return f, nil
}
