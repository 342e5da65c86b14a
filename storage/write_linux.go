package storage

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// reserveSpace reserves disk space for a file, so that a full disk is detected before data is
// written. It does nothing if the file system does not support this.
func reserveSpace(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return nil // the file system cannot reserve
}

// openDirect opens a file for direct I/O, or returns nil if that is not supported.
func openDirect(path string) *os.File {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return f
}

// isDirectUnsupported reports whether err means that the file system does not support direct I/O.
func isDirectUnsupported(err error) bool { return errors.Is(err, syscall.EINVAL) }

// renameExclusive renames a file. It fails if newPath exists.
func renameExclusive(oldPath, newPath string) error {
	return unix.Renameat2(unix.AT_FDCWD, oldPath, unix.AT_FDCWD, newPath, unix.RENAME_NOREPLACE)
}
