package files

import (
	"errors"
	"io"
	"os"
)

// Appender appends records to a file. If a write fails, for example because the disk is full, no
// part of the record remains in the file. An Appender is not safe for concurrent use.
type Appender struct {
	file File
	size int64
}

// File contains the methods of *os.File that an [Appender] uses.
type File interface {
	io.WriterAt
	io.ReaderAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// OpenAppender opens a regular file for appending, and creates the file if it does not exist. If
// mustBeNew is true, an existing file is an error that matches fs.ErrExist. Symbolic links are not
// followed.
func OpenAppender(path string, mustBeNew bool) (*Appender, error) {
	flag := os.O_RDWR | os.O_CREATE | noFollow
	if mustBeNew {
		flag |= os.O_EXCL
	}
	f, info, err := openRegular(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return &Appender{file: f, size: info.Size()}, nil
}

// SetFile replaces the file of the Appender and returns the previous file. Tests use SetFile to
// simulate write errors.
func (a *Appender) SetFile(file File) File {
	old := a.file
	a.file = file
	return old
}

// Size returns the size of the file in bytes.
func (a *Appender) Size() int64 { return a.size }

// Bytes returns the contents of the file. A file of more than limit bytes is an error.
func (a *Appender) Bytes(limit int64) ([]byte, error) {
	return ReadAll(io.NewSectionReader(a.file, 0, a.size), limit)
}

// Append appends a record. After an error, the file is unchanged, and Append can be called again.
func (a *Appender) Append(record []byte) error {
	n, err := a.file.WriteAt(record, a.size)
	if err == nil && n < len(record) {
		err = io.ErrShortWrite
	}
	if err != nil {
		// If Truncate fails, the next record overwrites the partial one.
		_ = a.file.Truncate(a.size)
		return err
	}
	a.size += int64(len(record))
	return nil
}

// Truncate shortens the file to the given size in bytes.
func (a *Appender) Truncate(size int64) error {
	if err := a.file.Truncate(size); err != nil {
		return err
	}
	a.size = size
	return nil
}

// Sync writes the file to the disk.
func (a *Appender) Sync() error { return a.file.Sync() }

// Close closes the file. A second Close has no effect.
func (a *Appender) Close() error {
	if err := a.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
