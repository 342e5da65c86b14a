package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Open opens a regular file to read. It does not wait for a pipe's other end, and reads no device.
// Errors are [*Error] and those of os.Open.
func Open(path string) (*os.File, fs.FileInfo, error) { return open(path, os.O_RDONLY, 0) }

// OpenHere opens a regular file to read, as [Open] does, and refuses a symbolic link.
func OpenHere(path string) (*os.File, fs.FileInfo, error) {
	return open(path, os.O_RDONLY|noFollow, 0)
}

// OpenOwn opens a regular file that is the caller's own, such as a lock or a record, with the flags
// and the permissions of os.OpenFile. It refuses a symbolic link: another user could have put it
// there, to have another file written to.
func OpenOwn(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, _, err := open(path, flag|noFollow, mode)
	return f, err
}

// CreateBeside makes a new file under a name that other programs may know, such as that of a file on
// its way to another name. A file or a link that stands there is removed, and not followed.
func CreateBeside(path string, mode fs.FileMode) (*os.File, error) {
	if err := Local(path); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, mode)
}

// Dir is a folder as a file system, of which [Open] opens the files. Links are followed.
type Dir string

// Open opens a regular file.
func (d Dir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, _, err := Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return f, nil
}

// Stat describes a file without opening it.
func (d Dir) Stat(name string) (fs.FileInfo, error) { return fs.Stat(os.DirFS(string(d)), name) }

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
		e := &Error{Path: path, Reason: NotRegular, Found: Kind(mode)}
		if mode&(fs.ModeNamedPipe|fs.ModeDevice) != 0 {
			e.Hint = "write what it gives to a file, and name that"
		}
		return e
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

// Read reads a whole regular file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	data, _, err := read(path, os.O_RDONLY, limit)
	return data, err
}

// ReadHere reads a file, as [Read] does, and refuses a symbolic link.
func ReadHere(path string, limit int64) ([]byte, fs.FileInfo, error) {
	return read(path, os.O_RDONLY|noFollow, limit)
}

func read(path string, flag int, limit int64) ([]byte, fs.FileInfo, error) {
	f, info, err := open(path, flag, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, nil, TooLong(path, limit)
	}
	data, err := All(f, limit)
	if errors.Is(err, ErrTooLong) {
		err = TooLong(path, limit)
	}
	return data, info, err
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
