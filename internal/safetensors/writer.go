package safetensors

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Writer streams tensors. One goroutine uses it at a time.
type Writer struct {
	w      io.Writer
	layout []Info
	next   int   // tensor that is being written
	done   int64 // its bytes so far
	err    error
}

// NewWriter writes the header of the given tensors and metadata. Write the data after it, in the
// order of [Layout], and call Finish, which checks that the data is complete. The errors of dtypes,
// shapes and names that the format does not have, and of a header that is too long, match
// [ErrFormat].
func NewWriter(w io.Writer, tensors []Spec, metadata map[string]string) (*Writer, error) {
	layout, err := Layout(tensors)
	if err != nil {
		return nil, err
	}
	header, err := appendHeader(nil, layout, metadata)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(header); err != nil {
		return nil, doing("write", "header", err)
	}
	return &Writer{w: w, layout: layout}, nil
}

// Write appends bytes to a tensor. The bytes of a tensor may come in any number of pieces. The
// tensors come in the order of [Layout]; a tensor of no bytes may be left out. After a failed write
// all later calls return its error.
func (w *Writer) Write(name string, p []byte) error {
	if w.err != nil {
		return w.err
	}
	for w.full() && w.layout[w.next].Name != name {
		w.next, w.done = w.next+1, 0
	}
	if w.next >= len(w.layout) {
		return invalid("tensor %q written after the last one, or out of order", name)
	}
	t := w.layout[w.next]
	if t.Name != name {
		return invalid("tensor %q written out of order: %q comes next, at byte %d of %d", name, t.Name, w.done, t.Bytes)
	}
	if int64(len(p)) > t.Bytes-w.done {
		return invalid("tensor %q has %d bytes, more were written", name, t.Bytes)
	}
	n, err := w.w.Write(p)
	w.done += int64(n)
	if err != nil {
		w.err = doing("write", fmt.Sprintf("tensor %q", name), err)
	}
	return w.err
}

// full reports whether the current tensor has all its bytes.
func (w *Writer) full() bool { return w.next < len(w.layout) && w.done == w.layout[w.next].Bytes }

// Finish checks that all tensors were written in full. It does not close the underlying writer.
func (w *Writer) Finish() error {
	if w.err != nil {
		return w.err
	}
	for w.full() {
		w.next, w.done = w.next+1, 0
	}
	if w.next < len(w.layout) {
		t := w.layout[w.next]
		return invalid("tensor %q has %d of its %d bytes", t.Name, w.done, t.Bytes)
	}
	return nil
}

// FileWriter writes a file that appears under its path when it is complete. One goroutine uses it
// at a time.
type FileWriter struct {
	*Writer
	path string
	tmp  *os.File
	buf  *bufio.Writer
}

// Create makes a file beside path, under a temporary name. Commit puts the file in place; Close
// without Commit removes it.
func Create(path string, tensors []Spec, metadata map[string]string) (*FileWriter, error) {
	tmp, err := createTemp(path)
	if err != nil {
		return nil, doing("create", "", err)
	}
	f := &FileWriter{path: path, tmp: tmp, buf: bufio.NewWriterSize(tmp, 1<<20)}
	if f.Writer, err = NewWriter(f.buf, tensors, metadata); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// createTemp makes a new file with the permissions a plain file would get.
func createTemp(path string) (*os.File, error) {
	for try := 0; ; try++ {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return nil, err
		}
		name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+hex.EncodeToString(random[:])+".tmp")
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil || !errors.Is(err, os.ErrExist) || try > 100 {
			return f, err
		}
	}
}

// Commit checks that the file is complete, brings it to the disk and renames it to its path, where
// it replaces an earlier file. After an error the path is unchanged, and the caller still has to
// call Close.
func (f *FileWriter) Commit() error {
	if f.tmp == nil {
		return doing("commit", f.path, os.ErrClosed)
	}
	if err := f.Finish(); err != nil {
		return err
	}
	err := f.buf.Flush()
	if err == nil {
		err = f.tmp.Sync()
	}
	if err == nil {
		err = f.tmp.Close()
	}
	if err == nil {
		err = os.Rename(f.tmp.Name(), f.path)
	}
	if err != nil {
		return doing("commit", f.path, err)
	}
	f.tmp = nil
	return syncDir(filepath.Dir(f.path))
}

// syncDir makes a rename last through a loss of power.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return doing("sync", "", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return doing("sync", "", err)
	}
	return nil
}

// Close removes the file if it was not committed. After Commit, or a second time, it does nothing.
func (f *FileWriter) Close() error {
	if f.tmp == nil {
		return nil
	}
	name := f.tmp.Name()
	err := f.tmp.Close()
	if errors.Is(err, os.ErrClosed) { // by a Commit that failed later
		err = nil
	}
	f.tmp = nil
	return errors.Join(err, os.Remove(name))
}
