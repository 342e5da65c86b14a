package input

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"unsafe"
)

// A TFRecord file is a sequence of records. A record consists of the length of the data (8 bytes,
// little endian), the masked CRC-32C of these 8 bytes (4 bytes), the data, and the masked CRC-32C
// of the data (4 bytes).
const (
	recordHeaderBytes = 12
	recordFooterBytes = 4
)

// rewriteHint is the hint in errors for damaged or truncated files.
const rewriteHint = "write the file again"

// TFRecords returns a dataset of the records of TFRecord files, plain or compressed, like
// tf.data.TFRecordDataset. Each element is a string scalar with the raw bytes of a record. Both
// checksums of every record are verified. The error for a wrong checksum matches [ErrCorrupt].
//
// Reading a short record allocates no memory for its data, because the string refers to a 128 KiB
// block of the file. An element that is kept, for example in a shuffle buffer, keeps its block in
// memory. Clone the strings with Map if that uses too much memory.
func TFRecords(paths []string, opts FileOptions) Dataset {
	return fromFiles(paths, opts, "tfrecords", Leaf(TensorSpec{Kind: String}), isRecordHeader,
		func(f *inputFile, offset int64) (recordReader, error) {
			r, err := f.reader(offset)
			if err != nil {
				return nil, err
			}
			end, err := f.size()
			if err != nil {
				return nil, err
			}
			if f.isCompressed() {
				end = offset // unknown
			}
			return &tfrecordReader{r: r, pos: offset, end: end, crcTable: crc32.MakeTable(crc32.Castagnoli)}, nil
		})
}

const (
	// readBlockBytes is the read size in bytes. It is larger than the buffer of the bufio.Reader,
	// so reads bypass that buffer.
	readBlockBytes       = 128 << 10
	scalarsPerAllocation = 128 // number of scalars per allocation
)

type tfrecordReader struct {
	r        io.Reader
	pos, end int64 // offset of the next record, and the size of the file when it was opened, if known
	crcTable *crc32.Table
	// buffer contains the bytes that were read, beginning at offset pos. They are never modified,
	// because the strings of records refer to them.
	buffer []byte
	// strings and scalars are preallocated storage for the tensors of the next records.
	strings         []string
	scalars         []typedStorage[string]
	lengthChecksums lengthChecksums
}

func (t *tfrecordReader) offset() int64 { return t.pos }

func (t *tfrecordReader) next() (Element, error) {
	if len(t.buffer) < recordHeaderBytes {
		if n, err := t.fillBuffer(recordHeaderBytes); err == io.EOF && n > 0 {
			return Element{}, corruptError(nil, rewriteHint, "the file ends within the head of a record")
		} else if err != nil {
			return Element{}, err
		}
	}
	head := t.buffer[:recordHeaderBytes]
	size := binary.LittleEndian.Uint64(head)
	if !t.lengthChecksums.matchesHeader(t.crcTable, size, head) {
		return Element{}, corruptError(nil, rewriteHint, "the checksum of the length does not match")
	}
	if size > math.MaxInt64-recordHeaderBytes-recordFooterBytes {
		return Element{}, corruptError(nil, rewriteHint, "a record of %d bytes", size)
	}
	recordBytes := recordHeaderBytes + int64(size) + recordFooterBytes
	if int64(len(t.buffer)) < recordBytes {
		if n, err := t.fillBuffer(recordBytes); err == io.EOF {
			return Element{}, corruptError(nil, rewriteHint, "the file ends after %d of the %d bytes of a record",
				n-recordHeaderBytes, size+recordFooterBytes)
		} else if err != nil {
			return Element{}, err
		}
	}
	body, tail := t.buffer[recordHeaderBytes:recordBytes-recordFooterBytes], t.buffer[recordBytes-recordFooterBytes:]
	if maskedSum(t.crcTable, body) != binary.LittleEndian.Uint32(tail) {
		return Element{}, corruptError(nil, rewriteHint, "the checksum of the data does not match")
	}
	t.pos, t.buffer = t.pos+recordBytes, t.buffer[recordBytes:]
	return Leaf(t.newScalar(unsafe.String(unsafe.SliceData(body), len(body)))), nil
}

// lengthChecksums caches the checksums of record lengths, which often repeat. Computing the checksum of
// a length costs as much as that of a short record. Entry i is for lengths that are i modulo 256.
type lengthChecksums [256]struct {
	size  uint64
	sum   uint32
	known bool
}

// matchesHeader reports whether the header of a record contains the correct checksum of its length.
func (l *lengthChecksums) matchesHeader(sums *crc32.Table, size uint64, head []byte) bool {
	entry := &l[size%uint64(len(l))]
	if !entry.known || entry.size != size {
		entry.size, entry.sum, entry.known = size, maskedSum(sums, head[:8]), true
	}
	return entry.sum == binary.LittleEndian.Uint32(head[8:])
}

// fillBuffer reads until buffer has n bytes, and returns the number of bytes in buffer. At the end
// of the file it returns io.EOF.
func (t *tfrecordReader) fillBuffer(n int64) (int64, error) {
	for int64(len(t.buffer)) < n {
		room := max(n, readBlockBytes)
		if n > readBlockBytes/4 {
			room = n + recordHeaderBytes // a long record has its own block, so that little of the next record is copied
		}
		// Memory for a large length is only allocated at once if the file has that many bytes.
		if rest := t.end - t.pos; rest >= n {
			room = min(room, rest)
		} else {
			room = min(room, 2*int64(len(t.buffer))+readBlockBytes)
		}
		block := allocateUninitialized(int(room))
		copied := copy(block, t.buffer)
		count, err := io.ReadAtLeast(t.r, block[copied:], int(min(n, room))-copied)
		t.buffer = block[:copied+count]
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if err != nil {
			return int64(len(t.buffer)), err
		}
	}
	return int64(len(t.buffer)), nil
}

// allocateUninitialized returns n bytes of uninitialized memory, which the caller must write before
// reading. It uses a strings.Builder because make clears the memory, which would cost a third of
// the time of reading a file.
func allocateUninitialized(n int) []byte {
	var b strings.Builder
	b.Grow(max(n, 1))
	b.WriteByte(0) // StringData of an empty string is unspecified
	return unsafe.Slice(unsafe.StringData(b.String()), b.Cap())[:n:n]
}

func (t *tfrecordReader) newScalar(s string) Tensor {
	if len(t.strings) == 0 {
		t.strings, t.scalars = make([]string, scalarsPerAllocation), make([]typedStorage[string], scalarsPerAllocation)
	}
	t.strings[0] = s
	t.scalars[0] = t.strings[:1:1]
	out := Tensor{data: &t.scalars[0]}
	t.strings, t.scalars = t.strings[1:], t.scalars[1:]
	return out
}

// AppendTFRecord appends data to file as one record in the format of tf.io.TFRecordWriter, and
// returns the extended slice.
func AppendTFRecord(file, data []byte) []byte {
	sums := crc32.MakeTable(crc32.Castagnoli)
	start := len(file)
	file = binary.LittleEndian.AppendUint64(file, uint64(len(data)))
	file = binary.LittleEndian.AppendUint32(file, maskedSum(sums, file[start:]))
	file = append(file, data...)
	return binary.LittleEndian.AppendUint32(file, maskedSum(sums, data))
}

// maskedSum returns the CRC of data in TFRecord's masked form: rotated by 15 bits, plus a constant.
func maskedSum(table *crc32.Table, data []byte) uint32 {
	crc := crc32.Checksum(data, table)
	return (crc>>15 | crc<<17) + 0xa282ead8
}
