package input

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"unsafe"
)

// A TFRecord file is a sequence of records: the length of the data (8 bytes, little endian), the
// masked CRC-32C of those 8 bytes (4 bytes), the data, and the masked CRC-32C of the data (4
// bytes).
const (
	recordHead = 12
	recordTail = 4
)

// again is the hint for a file that changed or broke off.
const again = "write the file again"

// TFRecords returns a dataset of the records of TFRecord files, plain or compressed, as
// tf.data.TFRecordDataset does: string scalars with the records' raw bytes. It verifies both
// checksums of every record; the error of a mismatch matches [ErrCorrupt].
//
// Short records are views of the blocks of 128 KiB that are read from the file, so that a record
// costs no allocation. Whoever keeps a few short records of a large file for long, as a shuffle
// does, keeps their blocks: clone the strings with Map where that is too much.
func TFRecords(paths []string, opts FileOptions) Dataset {
	return fromFiles(paths, opts, "tfrecords", Leaf(TensorSpec{Kind: String}), isRecordHead, func(f *openFile, at int64) (recordReader, error) {
		r, err := f.from(at)
		if err != nil {
			return nil, err
		}
		end, err := f.size()
		if err != nil {
			return nil, err
		}
		if f.isCompressed() {
			end = at // unknown
		}
		return &tfrecordReader{r: r, at: at, end: end, sums: crc32.MakeTable(crc32.Castagnoli)}, nil
	})
}

const (
	// recordBlock is what is read at once, in bytes: more than the buffer below, which is passed by.
	recordBlock = 128 << 10
	recordSlab  = 128 // scalars made at once
)

type tfrecordReader struct {
	r       io.Reader
	at, end int64 // of the next record, and the size of the file as it was opened if that is known
	sums    *crc32.Table
	// ahead are the bytes from at on that are read. What is in it never changes, as the records'
	// strings are made of it.
	ahead []byte
	// texts and scalars are the storage of the next records' tensors.
	texts   []string
	scalars []values[string]
	lengths lengthSums
}

func (t *tfrecordReader) offset() int64 { return t.at }

func (t *tfrecordReader) next() (Element, error) {
	if len(t.ahead) < recordHead {
		if n, err := t.read(recordHead); err == io.EOF && n > 0 {
			return Element{}, corrupt(nil, again, "the file ends within the head of a record")
		} else if err != nil {
			return Element{}, err
		}
	}
	head := t.ahead[:recordHead]
	size := binary.LittleEndian.Uint64(head)
	if !t.lengths.right(t.sums, size, head) {
		return Element{}, corrupt(nil, again, "the checksum of the length does not match")
	}
	if size > math.MaxInt64-recordHead-recordTail {
		return Element{}, corrupt(nil, again, "a record of %d bytes", size)
	}
	whole := recordHead + int64(size) + recordTail
	if int64(len(t.ahead)) < whole {
		if n, err := t.read(whole); err == io.EOF {
			return Element{}, corrupt(nil, again, "the file ends after %d of the %d bytes of a record", n-recordHead, size+recordTail)
		} else if err != nil {
			return Element{}, err
		}
	}
	body, tail := t.ahead[recordHead:whole-recordTail], t.ahead[whole-recordTail:]
	if maskedSum(t.sums, body) != binary.LittleEndian.Uint32(tail) {
		return Element{}, corrupt(nil, again, "the checksum of the data does not match")
	}
	t.at, t.ahead = t.at+whole, t.ahead[whole:]
	return Leaf(t.scalar(unsafe.String(unsafe.SliceData(body), len(body)))), nil
}

// lengthSums remembers the checksums of lengths, which repeat: the sum of 8 bytes costs as much as
// that of a short record. Element i is for lengths that are i modulo its size.
type lengthSums [256]struct {
	size  uint64
	sum   uint32
	known bool
}

// right says whether the head of a record has the checksum of its length.
func (l *lengthSums) right(sums *crc32.Table, size uint64, head []byte) bool {
	at := &l[size%uint64(len(l))]
	if !at.known || at.size != size {
		at.size, at.sum, at.known = size, maskedSum(sums, head[:8]), true
	}
	return at.sum == binary.LittleEndian.Uint32(head[8:])
}

// read reads on until n bytes are ahead. At the end of the file the error is io.EOF, with the
// number of bytes that there are.
func (t *tfrecordReader) read(n int64) (int64, error) {
	for int64(len(t.ahead)) < n {
		room := max(n, recordBlock)
		if n > recordBlock/4 {
			room = n + recordHead // a long record's block is its own: none of the next one is copied on
		}
		// What a wrong length says is not reserved unless the file has as much.
		if rest := t.end - t.at; rest >= n {
			room = min(room, rest)
		} else {
			room = min(room, 2*int64(len(t.ahead))+recordBlock)
		}
		block := unzeroed(int(room))
		had := copy(block, t.ahead)
		got, err := io.ReadAtLeast(t.r, block[had:], int(min(n, room))-had)
		t.ahead = block[:had+got]
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if err != nil {
			return int64(len(t.ahead)), err
		}
	}
	return int64(len(t.ahead)), nil
}

// unzeroed is memory that the caller writes before anybody reads it. A strings.Builder has it
// without the zeros that make writes first, which cost as much as a third of reading.
func unzeroed(n int) []byte {
	var b strings.Builder
	b.Grow(max(n, 1))
	b.WriteByte(0) // it has a first byte now, whose address leads to the rest
	return unsafe.Slice(unsafe.StringData(b.String()), b.Cap())[:n:n]
}

// scalar is a tensor of one string.
func (t *tfrecordReader) scalar(s string) Tensor {
	if len(t.texts) == 0 {
		t.texts, t.scalars = make([]string, recordSlab), make([]values[string], recordSlab)
	}
	t.texts[0] = s
	t.scalars[0] = t.texts[:1:1]
	out := Tensor{data: &t.scalars[0]}
	t.texts, t.scalars = t.texts[1:], t.scalars[1:]
	return out
}

// AppendTFRecord appends data to file as one record, as tf.io.TFRecordWriter writes it, and returns
// the extended slice.
func AppendTFRecord(file, data []byte) []byte {
	sums := crc32.MakeTable(crc32.Castagnoli)
	at := len(file)
	file = binary.LittleEndian.AppendUint64(file, uint64(len(data)))
	file = binary.LittleEndian.AppendUint32(file, maskedSum(sums, file[at:]))
	file = append(file, data...)
	return binary.LittleEndian.AppendUint32(file, maskedSum(sums, data))
}

// maskedSum rotates the CRC and adds a constant, so that a checksum over data that holds checksums
// stays useful.
func maskedSum(table *crc32.Table, data []byte) uint32 {
	crc := crc32.Checksum(data, table)
	return (crc>>15 | crc<<17) + 0xa282ead8
}
