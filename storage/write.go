package storage

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// writer writes a new file. If the system supports direct I/O, large aligned writes bypass the page
// cache, so that Sync has little left to write.
type writer struct {
	*os.File
	// direct is the same file opened for direct I/O; nil if direct I/O is not used.
	direct *os.File
	at     int64
}

const (
	// block is the alignment for direct I/O: of the address, the length and the file offset.
	block = 4 << 10
	// leastDirect is the smallest write for which direct I/O is faster.
	leastDirect = 1 << 20
	// leastDirectFile is the smallest file for which direct I/O is used.
	leastDirectFile = 8 << 20
)

// create creates a file, which must not exist. For large files it reserves size bytes.
func create(path string, size int64) (*writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	w := &writer{File: f}
	if size >= leastDirectFile {
		if err := reserve(f, size); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(path))
		}
		w.direct = openDirect(path)
	}
	return w, nil
}

func (w *writer) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if w.direct != nil && len(p) >= leastDirect && w.at%block == 0 && uintptr(unsafe.Pointer(&p[0]))%block == 0 {
		n = len(p) &^ (block - 1)
		if err := w.writeDirect(p[:n]); err != nil {
			if !refused(err) {
				return 0, err
			}
			_ = w.direct.Close()
			w.direct, n = nil, 0
		}
		w.at += int64(n)
	}
	if rest := p[n:]; len(rest) > 0 {
		more, err := w.WriteAt(rest, w.at)
		w.at += int64(more)
		if err != nil {
			return n + more, err
		}
	}
	return len(p), nil
}

// writeDirect writes two halves in parallel, which is faster than one large write.
func (w *writer) writeDirect(p []byte) error {
	half := len(p) / 2 &^ (block - 1)
	if half < leastDirect {
		half = len(p)
	}
	var both errgroup.Group
	if half < len(p) {
		both.Go(func() error {
			_, err := w.direct.WriteAt(p[half:], w.at+int64(half))
			return err
		})
	}
	_, err := w.direct.WriteAt(p[:half], w.at)
	return errors.Join(err, both.Wait())
}

// Sync truncates the file to the bytes that were written, which frees reserved space, and syncs it
// to disk.
func (w *writer) Sync() error {
	err := w.Truncate(w.at)
	if err == nil {
		err = w.File.Sync()
	}
	return err
}

func (w *writer) Close() error {
	var err error
	if w.direct != nil {
		err = w.direct.Close()
	}
	return errors.Join(err, w.File.Close())
}
