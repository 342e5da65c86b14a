package stepfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// magic is the first line of a step file. It is followed by the header as JSON, the module's text, the
// serialized program, and a SHA-256 of all preceding bytes. The header, the text and the program are each
// preceded by their length in 8 bytes.
const magic = "tpustrategy step\n"

// The supported versions of the format. Version 3 is version 2 with the elements of the step's large
// constants after the serialized program, in the same section and in the order of the arguments.
const (
	version          = 2
	constantsVersion = 3
)

// encode returns the content of a step file.
func encode(h header, text, program []byte) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(magic)
	for _, part := range [][]byte{head, text, program} {
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		b.Write(part)
	}
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	return b.Bytes(), nil
}

// The maximum sizes of the sections of a step file in bytes. A header needs a few hundred bytes for each
// variable. Compilers neither accept texts nor return programs of 2 GiB.
const (
	maxHeader  = 256 << 20
	maxSection = 2 << 30
	// maxConstants limits the large constants, which are limited by the memory of a device.
	maxConstants = 1 << 40
)

// maxChunk is the maximum size in bytes of the chunks in which readSection reads.
const maxChunk = 16 << 20

// readSection reads n bytes from r and also writes them to the hash sum. Because a damaged file may
// contain a huge n, it reads the first half in chunks before it allocates memory for all n bytes.
// If r ends early, data may have only the first bytes, and got is the number of bytes that were
// read.
func readSection(r io.Reader, sum io.Writer, n uint64) (data []byte, got uint64, err error) {
	read := func(p []byte) (ended bool, err error) {
		k, err := io.ReadFull(r, p)
		sum.Write(p[:k])
		got += uint64(k)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return true, nil
		}
		return false, err
	}
	var chunks [][]byte
	for size := uint64(1 << 20); got < n/2 && n > size; size = min(2*size, maxChunk) {
		chunk := make([]byte, min(size, n-got))
		ended, err := read(chunk)
		chunks = append(chunks, chunk)
		if ended || err != nil {
			return chunks[0][:min(got, uint64(len(chunks[0])))], got, err
		}
	}
	data = make([]byte, n)
	at := 0
	for _, chunk := range chunks {
		at += copy(data[at:], chunk)
	}
	_, err = read(data[at:])
	return data[:got], got, err
}

// decode reads the sections of a step file from r. It reads at most one byte after the end of the
// file. sum is the expected SHA-256 of the file in hexadecimal digits, or "" to accept any file.
// The results text and program are the sections after the header. Errors are [*Error] or the errors
// of r.
func decode(r io.Reader, sum string) (h header, text, program []byte, err error) {
	fail := func(reason Reason, format string, args ...any) (header, []byte, []byte, error) {
		return header{}, nil, nil, &Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	whole, size := sha256.New(), uint64(0)
	take := func(n uint64) (data []byte) { // returns fewer bytes at the end of the file
		if err == nil {
			var got uint64
			data, got, err = readSection(r, whole, n)
			size += got
		}
		return data
	}
	if begin := take(uint64(len(magic))); err == nil && string(begin) != magic {
		return fail(NotAFile, "it does not begin as one")
	}
	var parts [3][]byte
	var said struct {
		Version       int
		ConstantBytes uint64 `json:"constant_bytes"`
	}
	var headerErr error
	known := func() bool { return said.Version == version || said.Version == constantsVersion }
	for i, limit := range [...]uint64{maxHeader, maxSection, maxSection} {
		length := take(8)
		if len(length) < 8 {
			break
		}
		n := binary.LittleEndian.Uint64(length)
		if i == len(parts)-1 {
			limit += min(said.ConstantBytes, maxConstants)
		}
		if n > limit {
			return fail(Damaged, "a part of it has %d bytes, at most %d are read", n, limit)
		}
		if i > 0 && (headerErr != nil || !known()) {
			var skipped int64
			skipped, err = io.CopyN(whole, r, int64(n))
			size += uint64(skipped)
			if err == io.EOF {
				err = nil
			}
			continue
		}
		if parts[i] = take(n); i == 0 {
			headerErr = json.Unmarshal(parts[0], &said)
		}
	}
	body := whole.Sum(nil)
	stored, more := take(sha256.Size), take(1)
	switch found := hex.EncodeToString(whole.Sum(nil)); {
	case err != nil:
		return header{}, nil, nil, &errkind.Fault{Op: "stepfile: read", Err: err}
	case sum != "" && !strings.EqualFold(found, sum):
		return fail(Hash, "its SHA-256 is %s, not %s", found, sum)
	case len(stored) < sha256.Size:
		return fail(Damaged, "it ends after %d bytes", size)
	case len(more) > 0:
		return fail(Damaged, "there is more after its end")
	case !bytes.Equal(body, stored):
		return fail(Damaged, "its checksum is wrong")
	}
	if headerErr != nil {
		return fail(Damaged, "its header: %v", headerErr)
	}
	if !known() {
		return fail(Version, "it has version %d, this program reads %d and %d", said.Version, version, constantsVersion)
	}
	if err := json.Unmarshal(parts[0], &h); err != nil {
		return fail(Damaged, "its header: %v", err)
	}
	return h, parts[1], parts[2], nil
}
