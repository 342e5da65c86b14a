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

// NewWriter writes the header for the given tensors and metadata. The data follows in the order of [Layout], by calls of
// Write, and Finish checks that it is complete. Dtypes, shapes and names that the format does not have, and headers that
// are too long, match [ErrFormat].
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
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return &Writer{w: w, layout: layout}, nil
}

// Write appends bytes to a tensor, which may come in any number of pieces. Tensors come in the order of [Layout], those of
// no bytes left out or not. A failed write ends the file: later calls return its error.
func (w *Writer) Write(name string, p []byte) error {
	if w.err != nil {
		return w.err
	}
	for w.full() && w.layout[w.next].Name != name {
		w.next, w.done = w.next+1, 0
	}
	if w.next >= len(w.layout) {
		return fmt.Errorf("%w: tensor %q written after the last one, or out of order", ErrFormat, name)
	}
	t := w.layout[w.next]
	if t.Name != name {
		return fmt.Errorf("%w: tensor %q written out of order: %q comes next, at byte %d of %d", ErrFormat, name, t.Name, w.done, t.Bytes)
	}
	if int64(len(p)) > t.Bytes-w.done {
		return fmt.Errorf("%w: tensor %q has %d bytes, more were written", ErrFormat, name, t.Bytes)
	}
	n, err := w.w.Write(p)
	w.done += int64(n)
	if err != nil {
		w.err = fmt.Errorf("safetensors: tensor %q: %w", name, err)
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
		return fmt.Errorf("%w: tensor %q has %d of its %d bytes", ErrFormat, t.Name, w.done, t.Bytes)
	}
	return nil
}

// FileWriter writes a file that appears under its path when it is complete. One goroutine uses it at a time.
type FileWriter struct {
	*Writer
	path string
	tmp  *os.File
	buf  *bufio.Writer
}

// Create begins a file beside path under a temporary name. Commit puts it in place, Close without Commit removes it.
func Create(path string, tensors []Spec, metadata map[string]string) (*FileWriter, error) {
	tmp, err := createTemp(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
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

// Commit checks that the file is complete, brings it to the disk and renames it to its path, replacing what was there.
// After an error the path is as before, and Close has still to be called.
func (f *FileWriter) Commit() error {
	if f.tmp == nil {
		return fmt.Errorf("safetensors: commit %s: %w", f.path, os.ErrClosed)
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
		return fmt.Errorf("safetensors: %w", err)
	}
	f.tmp = nil
	return syncDir(filepath.Dir(f.path))
}

// syncDir makes a rename last through a loss of power.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// Close removes the file if it was not committed. It may be called after Commit, and twice.
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
