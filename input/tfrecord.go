package input

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// A TFRecord file is a sequence of records: the length of the data (8 bytes, little endian), the
// masked CRC-32C of those 8 bytes (4 bytes), the data, and the masked CRC-32C of the data (4
// bytes).
const (
	recordHead = 12
	recordTail = 4
)

// again is the hint for a file that changed or broke off.
const again = "write the file again; TFRecords reads uncompressed files"

// TFRecords returns a dataset of the records of uncompressed TFRecord files, as
// tf.data.TFRecordDataset does: string scalars with the records' raw bytes. It verifies both
// checksums of every record; the error of a mismatch matches [ErrCorrupt].
func TFRecords(paths []string, opts FileOptions) Dataset {
	return fromFiles(paths, opts, "tfrecords", Leaf(TensorSpec{Kind: String}), func(f *openFile, at int64) (recordReader, error) {
		r, err := f.from(at)
		if err != nil {
			return nil, err
		}
		return &tfrecordReader{r: r, at: at, sums: crc32.MakeTable(crc32.Castagnoli)}, nil
	})
}

type tfrecordReader struct {
	r    *bufio.Reader
	at   int64
	sums *crc32.Table
}

func (t *tfrecordReader) offset() int64 { return t.at }

func (t *tfrecordReader) next() (Element, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(t.r, head[:]); err == io.ErrUnexpectedEOF {
		return Element{}, corrupt(nil, again, "the file ends within the head of a record")
	} else if err != nil {
		return Element{}, err
	}
	if sum := maskedSum(t.sums, head[:8]); sum != binary.LittleEndian.Uint32(head[8:]) {
		return Element{}, corrupt(nil, again, "the checksum of the length does not match")
	}
	size := binary.LittleEndian.Uint64(head[:8])
	if size > math.MaxInt64-recordTail {
		return Element{}, corrupt(nil, again, "a record of %d bytes", size)
	}
	// The buffer grows with what is really there: a wrong length must not reserve memory.
	var data bytes.Buffer
	if n, err := io.CopyN(&data, t.r, int64(size)+recordTail); err == io.EOF {
		return Element{}, corrupt(nil, again, "the file ends after %d of the %d bytes of a record", n, size+recordTail)
	} else if err != nil {
		return Element{}, err
	}
	body, tail := data.Bytes()[:size], data.Bytes()[size:]
	if maskedSum(t.sums, body) != binary.LittleEndian.Uint32(tail) {
		return Element{}, corrupt(nil, again, "the checksum of the data does not match")
	}
	t.at += recordHead + int64(size) + recordTail
	return Leaf(Scalar(string(body))), nil
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
