package storage

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// fileWriter writes a new file. If the system supports direct I/O, large aligned writes bypass the
// page cache, so that Sync has less to write.
type fileWriter struct {
	*os.File
	// direct is the same file opened for direct I/O; nil if direct I/O is not used.
	direct *os.File
	offset int64
}

const (
	// directAlignment is the alignment of the address, the length and the file offset for direct
	// I/O.
	directAlignment = 4 << 10
	// minDirectWrite is the smallest write for which direct I/O is faster.
	minDirectWrite = 1 << 20
	// minDirectFile is the smallest file for which direct I/O is used.
	minDirectFile = 8 << 20
)

// createFile creates a file, which must not exist. If the file is large, it reserves size bytes on
// the disk.
func createFile(path string, size int64) (*fileWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	w := &fileWriter{File: f}
	if size >= minDirectFile {
		if err := reserveSpace(f, size); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(path))
		}
		w.direct = openDirect(path)
	}
	return w, nil
}

func (w *fileWriter) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if w.direct != nil && len(p) >= minDirectWrite && w.offset%directAlignment == 0 &&
		uintptr(unsafe.Pointer(&p[0]))%directAlignment == 0 {
		n = len(p) &^ (directAlignment - 1)
		if err := w.writeDirect(p[:n]); err != nil {
			if !isDirectUnsupported(err) {
				return 0, err
			}
			_ = w.direct.Close()
			w.direct, n = nil, 0
		}
		w.offset += int64(n)
	}
	if rest := p[n:]; len(rest) > 0 {
		count, err := w.WriteAt(rest, w.offset)
		w.offset += int64(count)
		if err != nil {
			return n + count, err
		}
	}
	return len(p), nil
}

// writeDirect writes p in two parallel halves, which is faster than one write.
func (w *fileWriter) writeDirect(p []byte) error {
	half := len(p) / 2 &^ (directAlignment - 1)
	if half < minDirectWrite {
		half = len(p)
	}
	var group errgroup.Group
	if half < len(p) {
		group.Go(func() error {
			_, err := w.direct.WriteAt(p[half:], w.offset+int64(half))
			return err
		})
	}
	_, err := w.direct.WriteAt(p[:half], w.offset)
	return errors.Join(err, group.Wait())
}

// Sync truncates the file to the written bytes, which frees reserved space, and syncs it to disk.
func (w *fileWriter) Sync() error {
	err := w.Truncate(w.offset)
	if err == nil {
		err = w.File.Sync()
	}
	return err
}

func (w *fileWriter) Close() error {
	var err error
	if w.direct != nil {
		err = w.direct.Close()
	}
	return errors.Join(err, w.File.Close())
}
