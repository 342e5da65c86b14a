package ahead

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// CheckWritable returns an error if a file at path certainly cannot be written. It does not write
// to the file.
func CheckWritable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return &errkind.Fault{Op: path, Reason: "it is a directory", Hint: "name a file", Class: errkind.ValueError}
		}
		return nil
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &errkind.Fault{Op: dir, Reason: "it is not a directory", Hint: "use a path in a directory",
			Class: errkind.ValueError}
	}
	const write = 2 // W_OK
	if err := syscall.Access(dir, write); err != nil {
		return &errkind.Fault{Op: "writing to", Subject: dir, Err: err, Hint: "name a directory that you can write to"}
	}
	return nil
}

// WriteFile replaces a file atomically. A file that is not regular, such as a pipe, is written
// directly.
func WriteFile(path string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return UsageErrorf(path, "name a file", "it is a directory")
	}
	beside := temporaryPath(path)
	if err == nil && !info.Mode().IsRegular() {
		beside = path
	}
	var f *os.File
	if beside != path {
		f, err = files.CreateNoFollow(beside, 0o666)
		if os.IsPermission(err) && info != nil {
			beside = path // in a directory that takes no other files
		}
	}
	if beside == path {
		f, err = os.Create(path)
	}
	// The name beside is nobody's business.
	named := func(err error) error {
		if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
			err = cause.Err
		}
		return &errkind.Fault{Op: "writing", Subject: path, Err: err}
	}
	if err != nil {
		return &UsageError{named(err)}
	}
	err = cmp.Or(write(f), f.Close())
	if beside != path {
		if err == nil && info != nil {
			err = os.Chmod(beside, info.Mode().Perm())
		}
		if err == nil {
			err = os.Rename(beside, path)
		}
		if err != nil {
			_ = os.Remove(beside)
		}
	}
	if err != nil {
		return named(err)
	}
	return nil
}

// temporaryPath returns the path of the temporary file of WriteFile, which contains the process id.
func temporaryPath(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.tmp", filepath.Base(path), os.Getpid()))
}

// RemoveTemporary removes the temporary file that an interrupted [WriteFile] of path may have left.
func RemoveTemporary(path string) {
	if path == "" {
		return
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	_ = os.Remove(temporaryPath(path))
}
