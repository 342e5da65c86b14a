package safetensors

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
)

// File is a safetensors file whose header was read. Any number of goroutines may use it.
type File struct {
	src      io.ReaderAt
	base     int64 // where the data starts
	tensors  []Info
	byName   map[string]int
	metadata map[string]string
}

// New reads the header of a file of size bytes, whose tensors are then read from src.
func New(src io.ReaderAt, size int64) (*File, error) {
	if size < lengthBytes {
		return nil, invalid("%d bytes are too few for a file", size)
	}
	var length [lengthBytes]byte
	if err := readFull(src, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeaderBytes {
		return nil, invalid("a header of %d bytes, at most %d are allowed", n, MaxHeaderBytes)
	}
	if int64(n) > size-lengthBytes {
		return nil, invalid("a header of %d bytes in a file of %d", n, size)
	}
	header := make([]byte, n)
	if err := readFull(src, header, lengthBytes); err != nil {
		return nil, err
	}
	f := &File{src: src, base: lengthBytes + int64(n)}
	var err error
	if f.tensors, f.metadata, err = parseHeader(header, size-f.base); err != nil {
		return nil, err
	}
	f.byName = make(map[string]int, len(f.tensors))
	for i, t := range f.tensors {
		f.byName[t.Name] = i
	}
	return f, nil
}

// readFull reads all of p; a source that is shorter than it was said to be is an invalid file.
func readFull(src io.ReaderAt, p []byte, at int64) error {
	n, err := src.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return invalid("the file ends at byte %d, before its end", at+int64(n))
	}
	return doing("read", "", err)
}

// Tensors lists the tensors in the order of their data.
func (f *File) Tensors() []Info {
	out := slices.Clone(f.tensors)
	for i := range out {
		out[i].Shape = slices.Clone(out[i].Shape)
	}
	return out
}

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (Info, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, false
	}
	t := f.tensors[i]
	t.Shape = slices.Clone(t.Shape)
	return t, true
}

// DataOffset is where the data begins in the file, in bytes.
func (f *File) DataOffset() int64 { return f.base }

// Metadata returns a copy of the file's metadata, and nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// ReadAt fills p with the bytes of a tensor, from an offset within the tensor. If the range is not
// in the tensor, it reads nothing and the error matches [ErrFormat].
func (f *File) ReadAt(name string, p []byte, offset int64) error {
	i, ok := f.byName[name]
	if !ok {
		return invalid("no tensor %q", name)
	}
	t := f.tensors[i]
	if offset < 0 || offset > t.Bytes || int64(len(p)) > t.Bytes-offset {
		return invalid("no bytes %d to %d in tensor %q of %d", offset, offset+int64(len(p)), name, t.Bytes)
	}
	if len(p) == 0 {
		return nil
	}
	return readFull(f.src, p, f.base+t.Offset+offset)
}
