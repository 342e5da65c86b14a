package idx

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MaxBytes is the size of the largest array that Read accepts, in bytes.
const MaxBytes = 1 << 30

const (
	unsignedByte = 0x08
	maxRank      = 8
)

// Array is the contents of an IDX file.
type Array struct {
	// Dims are the dimensions, outermost first.
	Dims []int
	// Data are the elements in row-major order.
	Data []byte
}

// ErrFormat matches errors for files with malformed contents.
var ErrFormat = errkind.New(errkind.DataLossError, "idx")

func formatError(format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...)}
}

// ReadFile reads the array in the file name, or in name.gz if name does not exist. Compression is
// detected from the contents. Directories, devices and other special files are an error. The error
// for a malformed file matches [ErrFormat].
func ReadFile(folder fs.FS, name string) (Array, error) {
	info, err := fs.Stat(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		if zipped, other := fs.Stat(folder, name+".gz"); other == nil {
			info, name, err = zipped, name+".gz", nil
		}
	}
	switch {
	case err != nil:
		return Array{}, &errkind.Fault{Op: "idx: open", Err: err, Hint: "the folder needs " + name + ", plain or with .gz"}
	case !info.Mode().IsRegular():
		return Array{}, &errkind.Fault{Op: "idx: open", Subject: name, Reason: "it is not a regular file",
			Class: errkind.ValueError}
	}
	f, err := folder.Open(name)
	if err != nil {
		return Array{}, &errkind.Fault{Op: "idx: open", Err: err}
	}
	defer f.Close()
	a, err := Read(f)
	if err != nil {
		return Array{}, &errkind.Fault{Op: "idx: read", Subject: name, Err: err}
	}
	return a, nil
}

// Read reads one array, which must extend to the end of r. The error for malformed data matches
// [ErrFormat]. Errors of r are returned unchanged.
func Read(r io.Reader) (Array, error) {
	if r == nil {
		return Array{}, &errkind.Fault{Op: "idx: read", Reason: "the reader is nil", Hint: "give an open file",
			Class: errkind.ValueError}
	}
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return Array{}, gzipError(err)
		}
		in = bufio.NewReader(unzipped)
	}
	dims, size, err := readHeader(in)
	if err != nil {
		return Array{}, err
	}
	// One more byte than specified shows whether the file is longer.
	data, err := io.ReadAll(io.LimitReader(in, int64(size)+1))
	if err != nil {
		return Array{}, gzipError(err)
	}
	if len(data) < size {
		return Array{}, formatError("dimensions %v announce %d bytes, but the file ends after %d", dims, size, len(data))
	}
	if len(data) > size {
		return Array{}, formatError("dimensions %v announce %d bytes, but the file is longer", dims, size)
	}
	return Array{Dims: dims, Data: data}, nil
}

// readHeader reads the dimensions. size is the number of elements.
func readHeader(in io.Reader) (dims []int, size int, err error) {
	var magic [4]byte
	if _, err := io.ReadFull(in, magic[:]); err != nil {
		return nil, 0, truncationError("magic number", err)
	}
	if magic[0] != 0 || magic[1] != 0 {
		return nil, 0, formatError("magic number %#x; an IDX file begins with two zero bytes", magic)
	}
	if magic[2] != unsignedByte {
		return nil, 0, formatError("element type %#02x; only unsigned bytes (0x08) are read", magic[2])
	}
	rank := int(magic[3])
	if rank == 0 || rank > maxRank {
		return nil, 0, formatError("%d dimensions; 1 to %d are read", rank, maxRank)
	}
	size = 1
	for i := range rank {
		var word [4]byte
		if _, err := io.ReadFull(in, word[:]); err != nil {
			return nil, 0, truncationError(fmt.Sprintf("dimension %d of %d", i, rank), err)
		}
		dim := binary.BigEndian.Uint32(word[:])
		dims = append(dims, int(dim))
		product := int64(size) * int64(dim)
		if product > MaxBytes {
			return nil, 0, formatError("dimensions %v announce more than %d bytes", dims, MaxBytes)
		}
		size = int(product)
	}
	return dims, size, nil
}

// truncationError converts an end of file to a format error that names the truncated section.
func truncationError(section string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("the file ends in its %s", section)
	}
	return gzipError(err)
}

// gzipError converts gzip errors to format errors and returns other errors unchanged.
func gzipError(err error) error {
	var flateErr flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &flateErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("the compressed data is damaged: %v", err)
	}
	return err
}
