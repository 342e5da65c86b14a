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

// A step file holds a compiled step: a magic line, the length of the header and the header as JSON,
// the lengths and bytes of the module's text and of the serialized program, and a checksum of all
// of it.

const magic = "tpustrategy step\n"

// version is the version of the form. Another one is refused.
const version = 2

// encode writes a step file.
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

// The bounds of a step file's parts: a header has some hundred bytes a variable, and compilers
// neither take texts nor give programs of 2 GiB.
const (
	maxHeader = 256 << 20
	maxPart   = 2 << 30
)

// decode reads a step file as far as its parts say it goes, so that what is none, and what has no
// end, is not read on. sum is the hash it must have, or "". Errors are [*Error], beside those of r.
func decode(r io.Reader, sum string) (h header, text, program []byte, err error) {
	fail := func(reason Reason, format string, args ...any) (header, []byte, []byte, error) {
		return header{}, nil, nil, &Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	whole, size := sha256.New(), 0
	take := func(n uint64) (data []byte) { // fewer bytes where the file ends
		if err == nil {
			data, err = io.ReadAll(io.TeeReader(io.LimitReader(r, int64(n)), whole))
			size += len(data)
		}
		return data
	}
	if begin := take(uint64(len(magic))); err == nil && string(begin) != magic {
		return fail(NotAFile, "it does not begin as one")
	}
	var parts [3][]byte
	for i, limit := range [...]uint64{maxHeader, maxPart, maxPart} {
		length := take(8)
		if len(length) < 8 {
			break
		}
		n := binary.LittleEndian.Uint64(length)
		if n > limit {
			return fail(Damaged, "a part of it has %d bytes, at most %d are read", n, limit)
		}
		parts[i] = take(n)
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
	var said struct{ Version int }
	if err := json.Unmarshal(parts[0], &said); err != nil {
		return fail(Damaged, "its header: %v", err)
	}
	if said.Version != version {
		return fail(Version, "it has version %d, this program reads %d", said.Version, version)
	}
	if err := json.Unmarshal(parts[0], &h); err != nil {
		return fail(Damaged, "its header: %v", err)
	}
	return h, parts[1], parts[2], nil
}
