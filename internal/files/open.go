package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Open opens a regular file to read. It does not wait for a pipe's other end, and
// reads no device. Errors are [*Error] and those of os.Open.
func Open(path string) (*os.File, fs.FileInfo, error) { return open(path, os.O_RDONLY, 0) }

// OpenHere is Open of a file that must not be a symbolic link.
func OpenHere(path string) (*os.File, fs.FileInfo, error) {
	return open(path, os.O_RDONLY|noFollow, 0)
}

// OpenLock opens a file of the caller's own to lock and to note something in, making
// it if it is not there. It must not be a symbolic link.
func OpenLock(path string, mode fs.FileMode) (*os.File, error) {
	f, _, err := open(path, os.O_RDWR|os.O_CREATE|noFollow, mode)
	return f, err
}

func open(path string, flag int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	if err := Local(path); err != nil {
		return nil, nil, err
	}
	stat := os.Stat
	if flag&noFollow != 0 && noFollow != 0 {
		stat = os.Lstat
	}
	// To open a device may do something already, so the kind is looked at before.
	if info, err := stat(path); err == nil {
		if err := Regular(path, info); err != nil {
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
		err = Regular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Regular refuses what is no regular file.
func Regular(path string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return &Error{Path: path, Reason: Link, Hint: "put the file itself there"}
	default:
		return &Error{Path: path, Reason: NotRegular, Found: Kind(mode)}
	}
}

// Kind names a kind of file.
func Kind(mode fs.FileMode) string {
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

// Read reads a whole file of at most limit bytes. What is no regular file, such as the
// pipe of a shell's <(...), is read as far as the limit too.
func Read(path string, limit int64) ([]byte, error) {
	if err := Local(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, Regular(path, info)
	}
	if info.Mode().IsRegular() && info.Size() > limit {
		return nil, TooLong(path, limit)
	}
	data, err := All(f, limit)
	if errors.Is(err, ErrTooLong) {
		return nil, TooLong(path, limit)
	}
	return data, err
}

// ErrTooLong is matched by the error of All for a reader that goes on.
var ErrTooLong = errkind.New(errkind.ValueError, "more bytes than are read")

// All reads what r has, which is at most limit bytes.
func All(r io.Reader, limit int64) ([]byte, error) {
	var data bytes.Buffer
	n, err := io.Copy(&data, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w: at most %d", ErrTooLong, limit)
	}
	return data.Bytes(), err
}

// TooLong is the error of a file of more than limit bytes.
func TooLong(path string, limit int64) error {
	return &Error{Path: path, Reason: TooLarge, Found: fmt.Sprintf("at most %d bytes are read", limit)}
}
