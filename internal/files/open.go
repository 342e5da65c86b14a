package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Open opens a regular file for reading. It rejects pipes, which could block, and devices. Errors
// are an [*Error] or an error of os.Open.
func Open(path string) (*os.File, fs.FileInfo, error) { return openRegular(path, os.O_RDONLY, 0) }

// OpenNoFollow is like [Open], but does not follow symbolic links.
func OpenNoFollow(path string) (*os.File, fs.FileInfo, error) {
	return openRegular(path, os.O_RDONLY|noFollow, 0)
}

// OpenFileNoFollow opens a regular file that belongs to the caller, such as a lock file. flag and
// mode are as for os.OpenFile. Symbolic links are not followed, because another user could have
// created them to redirect writes.
func OpenFileNoFollow(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, _, err := openRegular(path, flag|noFollow, mode)
	return f, err
}

// CreateNoFollow creates a new file at a path that other programs can predict, such as the path of
// a temporary file. An existing file or link at the path is removed. Links are not followed.
func CreateNoFollow(path string, mode fs.FileMode) (*os.File, error) {
	if err := CheckLocal(path); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, mode)
}

// Dir is a directory that implements fs.FS. It opens only regular files and follows links.
type Dir string

// Open opens a regular file.
func (d Dir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, _, err := Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, err // not f, which would be a nil *os.File in a non-nil interface
	}
	return f, nil
}

// Stat returns information on a file without opening it.
func (d Dir) Stat(name string) (fs.FileInfo, error) { return fs.Stat(os.DirFS(string(d)), name) }

func openRegular(path string, flag int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	if err := CheckLocal(path); err != nil {
		return nil, nil, err
	}
	stat := os.Stat
	if flag&noFollow != 0 && noFollow != 0 {
		stat = os.Lstat
	}
	// The type is checked before Open, because opening a device can have an effect.
	if info, err := stat(path); err == nil {
		if err := CheckRegular(path, info); err != nil {
			return nil, nil, err
		}
	} else if flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, flag|nonBlock, mode)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = CheckRegular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// CheckRegular returns an [*Error] unless info describes a regular file.
func CheckRegular(path string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return &Error{Path: path, Reason: IsLink, Hint: "replace the link by the file"}
	default:
		e := &Error{Path: path, Reason: NotRegular, Found: DescribeType(mode)}
		if mode&(fs.ModeNamedPipe|fs.ModeDevice) != 0 {
			e.Hint = "write its contents to a file, and use the path of that file"
		}
		return e
	}
}

// DescribeType returns the type of a file, such as "a pipe".
func DescribeType(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "mode " + mode.String()
}

// ReadFile returns the contents of a regular file. A file of more than limit bytes is an error.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readFile(path, os.O_RDONLY, limit)
	return data, err
}

// ReadFileNoFollow is like [ReadFile], but does not follow symbolic links.
func ReadFileNoFollow(path string, limit int64) ([]byte, fs.FileInfo, error) {
	return readFile(path, os.O_RDONLY|noFollow, limit)
}

func readFile(path string, flag int, limit int64) ([]byte, fs.FileInfo, error) {
	f, info, err := openRegular(path, flag, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, nil, TooLargeError(path, limit)
	}
	data, err := ReadAll(f, limit)
	if errors.Is(err, ErrTooLong) {
		err = TooLargeError(path, limit)
	}
	return data, info, err
}

// ErrTooLong reports that a reader contains more bytes than the limit of [ReadAll].
var ErrTooLong = errkind.New(errkind.ValueError, "more bytes than the limit")

// ReadAll reads r until EOF. If r contains more than limit bytes, the error matches [ErrTooLong].
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	var data bytes.Buffer
	n, err := io.Copy(&data, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = &errkind.Fault{Op: "read", Reason: fmt.Sprintf("the limit is %d bytes", limit), Err: ErrTooLong}
	}
	return data.Bytes(), err
}

// TooLargeError returns the error for a file of more than limit bytes.
func TooLargeError(path string, limit int64) error {
	return &Error{Path: path, Reason: TooLarge, Found: fmt.Sprintf("the limit is %d bytes", limit)}
}

// SHA256 returns the SHA-256 hash of a regular file in hexadecimal digits.
func SHA256(path string) (string, error) {
	f, _, err := Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
