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
	"os"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// MaxBytes is the size of the largest array that Read takes.
const MaxBytes = 1 << 30

const (
	unsignedByte = 0x08
	maxRank      = 8
)

// Array is the contents of a file.
type Array struct {
	// Dims are the sizes of the dimensions, the slowest first.
	Dims []int
	// Data are the elements, row-major.
	Data []byte
}

// FormatError reports what is wrong with the contents of a file.
type FormatError struct {
	// File is its path, if it has one.
	File string
	// Reason says what was found and what was expected.
	Reason string
}

// Error returns "idx: file: reason".
func (e *FormatError) Error() string {
	if e.File == "" {
		return errkind.Text("idx", e.Reason, nil, "")
	}
	return errkind.Text("idx: "+e.File, e.Reason, nil, "")
}

// Kind returns DataLossError.
func (*FormatError) Kind() errkind.Kind { return errkind.DataLossError }

func formatError(format string, args ...any) error {
	return &FormatError{Reason: fmt.Sprintf(format, args...)}
}

// ReadFile reads the file at path or, if there is none, at path + ".gz". Contents decide whether a
// file is compressed, not its name. Errors: [*FormatError], and those of os.Open.
func ReadFile(path string) (Array, error) {
	f, _, err := files.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		var gzErr error
		if f, _, gzErr = files.Open(path + ".gz"); gzErr == nil {
			path, err = path+".gz", nil
		} else if errors.Is(gzErr, os.ErrNotExist) {
			err = fmt.Errorf("%w (nor with .gz)", err) // inside ReadFile's own error
		} else {
			err = gzErr
		}
	}
	if err != nil {
		return Array{}, &errkind.Fault{Op: "idx: open", Err: err}
	}
	defer f.Close()
	return readNamed(f, path)
}

// readNamed is Read of a file, which its errors name.
func readNamed(f io.Reader, path string) (Array, error) {
	a, err := Read(f)
	if format := (*FormatError)(nil); errors.As(err, &format) {
		format.File = path
		return Array{}, format
	}
	if err != nil {
		return Array{}, &errkind.Fault{Op: "idx: read", Subject: path, Err: err}
	}
	return a, nil
}

// Read reads an array and expects r to end with it. A malformed file is a [*FormatError]; other
// errors are those of r.
func Read(r io.Reader) (Array, error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return Array{}, corrupt(err)
		}
		in = bufio.NewReader(unzipped)
	}
	dims, size, err := header(in)
	if err != nil {
		return Array{}, err
	}
	// One byte more than announced shows whether the file goes on.
	data, err := io.ReadAll(io.LimitReader(in, int64(size)+1))
	if err != nil {
		return Array{}, corrupt(err)
	}
	if len(data) < size {
		return Array{}, formatError("dimensions %v announce %d bytes, but the file ends after %d", dims, size, len(data))
	}
	if len(data) > size {
		return Array{}, formatError("dimensions %v announce %d bytes, but the file goes on", dims, size)
	}
	return Array{Dims: dims, Data: data}, nil
}

// header reads the dimensions and the number of bytes that they announce.
func header(in io.Reader) (dims []int, size int, err error) {
	var magic [4]byte
	if _, err := io.ReadFull(in, magic[:]); err != nil {
		return nil, 0, truncated("magic number", err)
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
			return nil, 0, truncated(fmt.Sprintf("dimension %d of %d", i, rank), err)
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

// truncated turns an end of file into what it means here.
func truncated(where string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("the file ends in its %s", where)
	}
	return corrupt(err)
}

// corrupt turns gzip's complaints into format errors and leaves those of the reader below.
func corrupt(err error) error {
	var flateErr flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &flateErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("the compressed data is damaged: %v", err)
	}
	return err
}
