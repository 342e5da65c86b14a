package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Write writes tensors and metadata to a stream. It calls data for each nonempty tensor, in the
// order of [EncodeHeader]. data must write all bytes of the tensor to w. An error matches
// [ErrFormat] if the format does not permit a dtype, a shape, a name or the size of the header, or
// if data writes a wrong number of bytes.
func Write(w io.Writer, tensors []Spec, metadata map[string]string, data func(t Info, w io.Writer) error) error {
	header, layout, err := EncodeHeader(tensors, metadata, 8)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return ioError("write", "header", err)
	}
	for _, t := range layout {
		if t.Bytes == 0 {
			continue
		}
		s := &tensorWriter{w: w, tensor: t}
		if err := data(t, s); err != nil {
			return err
		}
		if s.written < t.Bytes {
			return formatError("only %[2]d of the %[3]d bytes of tensor %[1]q were written", t.Name, s.written, t.Bytes)
		}
	}
	return nil
}

// tensorWriter writes the bytes of one tensor. Additional bytes are an error.
type tensorWriter struct {
	w       io.Writer
	tensor  Info
	written int64
}

func (s *tensorWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > s.tensor.Bytes-s.written {
		return 0, formatError("tensor %q has %d bytes, but more were written", s.tensor.Name, s.tensor.Bytes)
	}
	n, err := s.w.Write(p)
	s.written += int64(n)
	if err != nil {
		err = ioError("write", fmt.Sprintf("tensor %q", s.tensor.Name), err)
	}
	return n, err
}

// WriteFile is like [Write], but replaces a file atomically and syncs it to the disk.
func WriteFile(path string, tensors []Spec, metadata map[string]string, data func(t Info, w io.Writer) error) error {
	var failed error
	err := files.Replace(path, func(w io.Writer) error {
		failed = Write(w, tensors, metadata, data)
		return failed
	})
	if failed != nil {
		return failed // not wrapped by files.Replace
	}
	if err == nil {
		err = syncDir(path)
	}
	if err != nil {
		return ioError("write", "", err)
	}
	return nil
}

// syncDir syncs the directory of a file, so that a renamed file persists after a power failure.
func syncDir(path string) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
