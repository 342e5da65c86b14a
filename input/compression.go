package input

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// The values of [FileOptions.Compression], as in TensorFlow's compression_type.
const (
	gzipCompression = "GZIP"
	zlibCompression = "ZLIB"
	noCompression   = "NONE"
)

func checkCompression(name string) error {
	switch name {
	case "", noCompression, gzipCompression, zlibCompression:
		return nil
	}
	return valueError("read files", `use "GZIP", "ZLIB", "NONE", or "" to detect it`, "the compression %q", name)
}

// CompressionError reports a file in an unsupported compression format. It matches
// errors.ErrUnsupported.
type CompressionError struct {
	Path        string
	Compression string // such as "Zstandard"
}

func (e *CompressionError) Error() string {
	return fmt.Sprintf("input: file %s: the file is compressed with %s; decompress it, or compress it with gzip", e.Path,
		e.Compression)
}

// Is reports whether target is errors.ErrUnsupported.
func (*CompressionError) Is(target error) bool { return target == errors.ErrUnsupported }

// Kind returns NotImplementedError.
func (*CompressionError) Kind() errkind.Kind { return errkind.NotImplementedError }

// unsupportedCompressions lists formats that are detected by the first bytes of a file and rejected.
var unsupportedCompressions = []struct{ name, magic string }{
	{"Zstandard", "\x28\xb5\x2f\xfd"},
	{"bzip2", "BZh91AY&SY"},
	{"xz", "\xfd7zXZ\x00"},
	{"LZ4", "\x04\x22\x4d\x18"},
	{"Snappy", "\xff\x06\x00\x00sNaPpY"},
	{"ZIP", "PK\x03\x04"},
}

// detectionBytes is the number of bytes of a file that detectCompression examines.
const detectionBytes = recordHeaderBytes

// detectCompression returns the compression format of a file that begins with head. isPlain reports
// whether head can only be the beginning of an uncompressed file. With a nil isPlain, every file is
// treated as uncompressed, because a file of raw binary records may begin with any bytes.
func detectCompression(path string, head []byte, isPlain func(head []byte) bool) (string, error) {
	if isPlain == nil || isPlain(head) {
		return noCompression, nil
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b\x08")):
		return gzipCompression, nil
	case len(head) > 1 && head[0] == 0x78 && (head[1] == 0x01 || head[1] == 0x9c || head[1] == 0xda):
		return zlibCompression, nil
	}
	for _, c := range unsupportedCompressions {
		if bytes.HasPrefix(head, []byte(c.magic)) {
			return "", &CompressionError{Path: path, Compression: c.name}
		}
	}
	return noCompression, nil
}

// isText always returns false. Text formats use it as the isPlain argument of detectCompression, so
// that compressed files are always detected: hardly any text begins like a compressed file.
func isText([]byte) bool { return false }

func isRecordHeader(head []byte) bool {
	return len(head) >= recordHeaderBytes && maskedSum(crc32.MakeTable(crc32.Castagnoli),
		head[:8]) == binary.LittleEndian.Uint32(head[8:])
}

func decompress(r io.Reader, compression string) (io.Reader, error) {
	var z io.Reader
	var err error
	if compression == gzipCompression {
		z, err = gzip.NewReader(r)
	} else {
		z, err = zlib.NewReader(r)
	}
	if err == io.EOF {
		return bytes.NewReader(nil), nil // an empty file has no records
	}
	if err != nil {
		return nil, decompressionError(err, compression)
	}
	return &decompressor{z, compression}, nil
}

type decompressor struct {
	r           io.Reader
	compression string
}

func (d *decompressor) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil && err != io.EOF {
		err = decompressionError(err, d.compression)
	}
	return n, err
}

// decompressionError converts a decoder's error for damaged or truncated data to an error that
// matches ErrCorrupt. It returns other errors, such as read errors, unchanged.
func decompressionError(err error, compression string) error {
	var flateError flate.CorruptInputError
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return corruptError(nil, "write the file again", "the compressed data (%s) ends too early", compression)
	case errors.As(err, &flateError), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum),
		errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary):
		return corruptError(err, "write the file again, or correct FileOptions.Compression",
			"the compressed data (%s) is damaged", compression)
	}
	return err
}

// decompressFrom returns a reader that begins at the given offset of the decompressed data.
func (f *inputFile) decompressFrom(offset int64) (*bufio.Reader, error) {
	raw, err := f.rawReader(0)
	if err != nil {
		return nil, err
	}
	z, err := decompress(raw, f.compression)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(z, readBufferBytes)
	if _, err := io.CopyN(io.Discard, r, offset); err == io.EOF {
		return nil, stateError("the decompressed file is shorter than %d bytes", offset)
	} else if err != nil {
		return nil, err
	}
	return r, nil
}
