package files

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Replace writes a file atomically: it replaces the old file only when the new contents are on the
// disk. It keeps the permissions of the file and follows symbolic links. Pipes and other special
// files are written directly. If the disk is full, the error has the kind ResourceExhaustedError.
func Replace(path string, write func(w io.Writer) error) error {
	if err := CheckLocal(path); err != nil {
		return err
	}
	originalPath, target := path, path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	mode := fs.FileMode(0o644)
	info, err := os.Stat(target)
	switch {
	case err == nil && info.IsDir():
		return CheckRegular(originalPath, info)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return replaceError(originalPath, err)
		}
		err = writeBuffered(f, write)
		return replaceError(originalPath, errors.Join(err, f.Close()))
	case err == nil:
		mode = info.Mode().Perm()
	}
	f, err := createTemp(target, mode)
	if err != nil {
		return replaceError(originalPath, err)
	}
	temp := f.Name()
	err = writeBuffered(f, write)
	if err == nil && info != nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, target)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return replaceError(originalPath, err)
}

// createTemp creates a file with a random name in the same directory as path.
func createTemp(path string, mode fs.FileMode) (*os.File, error) {
	for range 100 {
		name := filepath.Join(filepath.Dir(path),
			"."+filepath.Base(path)+"."+strconv.FormatUint(rand.Uint64(), 36)+".tmp")
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fs.ErrExist
}

func writeBuffered(f *os.File, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

// replaceError converts err to the error of Replace. It omits the path of the temporary file.
func replaceError(path string, err error) error {
	if err == nil {
		return nil
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	fault := &errkind.Fault{Op: "write", Subject: path, Err: err, Class: errkind.KindOf(err)}
	if isDiskFull(err) {
		fault.Class, fault.Hint = errkind.ResourceExhaustedError, "free some space; the old file is unchanged"
	}
	return fault
}
