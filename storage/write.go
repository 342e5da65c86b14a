package storage

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// writer writes a new file. Where the system can write past its cache, large pieces go to the disk
// as they come, and Sync has nothing left to wait for.
type writer struct {
	*os.File
	// direct is the same file, written past the system's cache; nil where it cannot.
	direct *os.File
	at     int64
}

const (
	// block is what the place and the length of a piece in memory and in the file are multiples of,
	// so that it can go to the disk directly.
	block = 4 << 10
	// leastDirect is the least piece for which that is faster.
	leastDirect = 1 << 20
	// leastDirectFile is the least file.
	leastDirectFile = 8 << 20
)

// create makes a file that is not there yet.
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

// writeDirect writes two halves at a time: a disk takes both.
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

// Sync brings the file to the disk. It is as long as what was written: room that was reserved for
// more is given back.
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
