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

// Open opens a regular file to read. It does not wait for a pipe's other end, and reads no device.
// Errors are [*Error] and those of os.Open.
func Open(path string) (*os.File, fs.FileInfo, error) { return open(path, os.O_RDONLY, 0) }

// OpenHere opens a regular file to read, as [Open] does, and refuses a symbolic link.
func OpenHere(path string) (*os.File, fs.FileInfo, error) {
	return open(path, os.O_RDONLY|noFollow, 0)
}

// OpenLock opens a file of the caller's own to lock and to note something in. It makes the file if
// there is none, and refuses a symbolic link.
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

// Regular returns an [*Error] unless info is that of a regular file.
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

// Kind names the kind of file that a mode tells of, as in "a pipe".
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

// Read reads a whole file of at most limit bytes. A pipe, such as that of a shell's <(...), is read
// up to the limit too.
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

// ErrTooLong reports that a reader goes on after the limit of [All].
var ErrTooLong = errkind.New(errkind.ValueError, "more bytes than are read")

// All reads r to its end, after limit bytes at most. A reader that goes on gives an error that
// matches [ErrTooLong].
func All(r io.Reader, limit int64) ([]byte, error) {
	var data bytes.Buffer
	n, err := io.Copy(&data, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = &errkind.Fault{Op: "read", Reason: fmt.Sprintf("at most %d bytes", limit), Err: ErrTooLong}
	}
	return data.Bytes(), err
}

// TooLong returns the error of a file of more than limit bytes.
func TooLong(path string, limit int64) error {
	return &Error{Path: path, Reason: TooLarge, Found: fmt.Sprintf("at most %d bytes are read", limit)}
}
