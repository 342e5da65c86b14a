package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Write writes a file of tensors and metadata. It calls data for each tensor, in the order of
// [Header], which writes the tensor's bytes to w, in any number of pieces; a tensor of no bytes is
// left out. The errors of dtypes, shapes and names that the format does not have, of a header that
// is too long, and of tensors of more or fewer bytes, match [ErrFormat].
func Write(w io.Writer, tensors []Spec, metadata map[string]string, data func(t Info, w io.Writer) error) error {
	header, layout, err := Header(tensors, metadata, 8)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return doing("write", "header", err)
	}
	for _, t := range layout {
		if t.Bytes == 0 {
			continue
		}
		s := &tensorWriter{w: w, tensor: t}
		if err := data(t, s); err != nil {
			return err
		}
		if s.done < t.Bytes {
			return invalid("tensor %q has %d of its %d bytes", t.Name, s.done, t.Bytes)
		}
	}
	return nil
}

// tensorWriter writes the bytes of one tensor, and no more.
type tensorWriter struct {
	w      io.Writer
	tensor Info
	done   int64
}

func (s *tensorWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > s.tensor.Bytes-s.done {
		return 0, invalid("tensor %q has %d bytes, more were written", s.tensor.Name, s.tensor.Bytes)
	}
	n, err := s.w.Write(p)
	s.done += int64(n)
	if err != nil {
		err = doing("write", fmt.Sprintf("tensor %q", s.tensor.Name), err)
	}
	return n, err
}

// WriteFile is [Write] to a file, which appears under its path, in the place of one that is there,
// when it is complete and on the disk. After an error the path is unchanged.
func WriteFile(path string, tensors []Spec, metadata map[string]string, data func(t Info, w io.Writer) error) error {
	var failed error
	err := files.Replace(path, func(w io.Writer) error {
		failed = Write(w, tensors, metadata, data)
		return failed
	})
	if failed != nil {
		return failed // as it is: Replace keeps of an error what is about the file
	}
	if err == nil {
		err = syncFolder(path)
	}
	if err != nil {
		return doing("write", "", err)
	}
	return nil
}

// syncFolder makes the name of a file last through a loss of power.
func syncFolder(path string) error {
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
