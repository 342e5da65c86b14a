package input

import (
	"bufio"
	"io"
)

// FixedOptions describes files of binary records of fixed length. All sizes are in bytes.
type FixedOptions struct {
	FileOptions
	RecordBytes int // at least 1
	HeaderBytes int // number of bytes to skip at the start of each file
	FooterBytes int // number of bytes to skip at the end of each file
}

// FixedRecords returns a dataset of the fixed-length records of binary files, like
// tf.data.FixedLengthRecordDataset. Each element is a uint8 vector of RecordBytes values. If the length
// of a file without header and footer is not a multiple of RecordBytes, the error matches [ErrCorrupt].
func FixedRecords(paths []string, opts FixedOptions) Dataset {
	if opts.RecordBytes < 1 || opts.HeaderBytes < 0 || opts.FooterBytes < 0 {
		return invalidDataset("fixed records", "give at least 1 byte for a record and 0 for the others",
			"records of %d bytes with a header of %d and a footer of %d", opts.RecordBytes, opts.HeaderBytes, opts.FooterBytes)
	}
	spec := Leaf(TensorSpec{Kind: Uint8, Dims: []int{opts.RecordBytes}})
	return fromFiles(paths, opts.FileOptions, "fixed", spec, nil, func(f *inputFile, offset int64) (recordReader, error) {
		offset = max(offset, int64(opts.HeaderBytes))
		if f.isCompressed() {
			// The decompressed length is only known after decompressing the file.
			r, err := f.reader(0)
			if err != nil {
				return nil, err
			}
			size, err := io.Copy(io.Discard, r)
			if err != nil {
				return nil, err
			}
			return newFixedReader(f, offset, size, opts)
		}
		size, err := f.size()
		if err != nil {
			return nil, err
		}
		return newFixedReader(f, offset, size, opts)
	})
}

// newFixedReader returns a reader that begins at an offset of the file. size is the file's size
// after decompression, in bytes.
func newFixedReader(f *inputFile, offset, size int64, opts FixedOptions) (recordReader, error) {
	body := size - int64(opts.HeaderBytes) - int64(opts.FooterBytes)
	if body < 0 || body%int64(opts.RecordBytes) != 0 {
		return nil, corruptError(nil, "give the sizes that the file was written with",
			"a file of %d bytes does not hold a header of %d, records of %d and a footer of %d",
			size, opts.HeaderBytes, opts.RecordBytes, opts.FooterBytes)
	}
	r, err := f.reader(offset)
	if err != nil {
		return nil, err
	}
	return &fixedReader{reader: r, pos: offset, end: int64(opts.HeaderBytes) + body, recordBytes: opts.RecordBytes}, nil
}

type fixedReader struct {
	reader      *bufio.Reader
	pos, end    int64
	recordBytes int
}

func (f *fixedReader) offset() int64 { return f.pos }

func (f *fixedReader) next() (Element, error) {
	if f.pos >= f.end {
		return Element{}, io.EOF
	}
	if f.end-f.pos < int64(f.recordBytes) {
		return Element{}, stateError("byte %d is not the start of a record", f.pos)
	}
	data := make([]byte, f.recordBytes)
	if _, err := io.ReadFull(f.reader, data); err != nil {
		return Element{}, corruptError(err, "read a file that nobody writes", "the file became shorter while it was read")
	}
	f.pos += int64(f.recordBytes)
	return Leaf(Vector(data...)), nil
}
