package files

import (
	"errors"
	"io"
	"os"
)

// Appender appends records to a file. A record is in the file as a whole or not at all, also on a
// disk that is full. One goroutine uses an Appender at a time.
type Appender struct {
	file File
	size int64
}

// File is what an Appender uses of a file.
type File interface {
	io.WriterAt
	io.ReaderAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// OpenAppender opens a regular file to append to. It makes the file if there is none; if isNew is
// set a file that is there is an error that matches fs.ErrExist. A symbolic link is refused.
func OpenAppender(path string, isNew bool) (*Appender, error) {
	flag := os.O_RDWR | os.O_CREATE | noFollow
	if isNew {
		flag |= os.O_EXCL
	}
	f, info, err := open(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return &Appender{file: f, size: info.Size()}, nil
}

// Swap puts another file in the place of the Appender's, for tests of what goes wrong with files,
// and returns that.
func (a *Appender) Swap(file File) File {
	old := a.file
	a.file = file
	return old
}

// Size returns the number of bytes in the file.
func (a *Appender) Size() int64 { return a.size }

// Bytes returns the contents of the file, of limit bytes at most.
func (a *Appender) Bytes(limit int64) ([]byte, error) {
	return All(io.NewSectionReader(a.file, 0, a.size), limit)
}

// Append appends a record. After an error the file is as it was, and the record can be appended
// again.
func (a *Appender) Append(record []byte) error {
	n, err := a.file.WriteAt(record, a.size)
	if err == nil && n < len(record) {
		err = io.ErrShortWrite
	}
	if err != nil {
		// If this fails too, the next record overwrites what is there.
		_ = a.file.Truncate(a.size)
		return err
	}
	a.size += int64(len(record))
	return nil
}

// Truncate cuts the file to its first size bytes.
func (a *Appender) Truncate(size int64) error {
	if err := a.file.Truncate(size); err != nil {
		return err
	}
	a.size = size
	return nil
}

// Sync brings what was appended to the disk.
func (a *Appender) Sync() error { return a.file.Sync() }

// Close closes the file. A second Close does nothing.
func (a *Appender) Close() error {
	if err := a.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
