package safetensors

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
)

// File is an open safetensors file. It is safe for concurrent use.
type File struct {
	src      io.ReaderAt
	base     int64 // offset of the data in the file
	tensors  []Info
	byName   map[string]int
	metadata map[string]string
}

// New reads and validates the header of a file of size bytes. The caller must keep src open.
func New(src io.ReaderAt, size int64) (*File, error) {
	if size < lengthBytes {
		return nil, formatError("a file of %d bytes is too short", size)
	}
	var length [lengthBytes]byte
	if err := readFull(src, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeaderBytes {
		return nil, formatError("the header has %d bytes, but at most %d are allowed", n, MaxHeaderBytes)
	}
	if int64(n) > size-lengthBytes {
		return nil, formatError("a header of %d bytes in a file of %d", n, size)
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

// readFull reads len(p) bytes. If src has fewer bytes, the error matches ErrFormat.
func readFull(src io.ReaderAt, p []byte, offset int64) error {
	n, err := src.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return formatError("the file is truncated at byte %d", offset+int64(n))
	}
	return ioError("read", "", err)
}

// Tensors returns all tensors in the order of their data.
func (f *File) Tensors() []Info {
	out := slices.Clone(f.tensors)
	for i := range out {
		out[i].Shape = slices.Clone(out[i].Shape)
	}
	return out
}

// Tensor returns the tensor with the given name.
func (f *File) Tensor(name string) (Info, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, false
	}
	t := f.tensors[i]
	t.Shape = slices.Clone(t.Shape)
	return t, true
}

// DataOffset returns the byte offset of the data in the file.
func (f *File) DataOffset() int64 { return f.base }

// Metadata returns a copy of the metadata, or nil if there is none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// ReadAt fills p with bytes of a tensor, starting at a byte offset in the tensor. If the range
// exceeds the tensor, ReadAt reads nothing and returns an error that matches [ErrFormat].
func (f *File) ReadAt(name string, p []byte, offset int64) error {
	i, ok := f.byName[name]
	if !ok {
		return formatError("no tensor %q", name)
	}
	t := f.tensors[i]
	if offset < 0 || offset > t.Bytes || int64(len(p)) > t.Bytes-offset {
		return formatError("bytes %d to %d are outside of tensor %q, which has %d bytes", offset, offset+int64(len(p)),
			name, t.Bytes)
	}
	if len(p) == 0 {
		return nil
	}
	return readFull(f.src, p, f.base+t.Offset+offset)
}
