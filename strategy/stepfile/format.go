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

// decode is the inverse of encode. Errors are [*Error].
func decode(data []byte) (h header, text, program []byte, err error) {
	fail := func(reason Reason, format string, args ...any) (header, []byte, []byte, error) {
		return header{}, nil, nil, &Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		return fail(NotAFile, "it does not begin as one")
	}
	if len(data) < len(magic)+sha256.Size {
		return fail(Damaged, "it ends after %d bytes", len(data))
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return fail(Damaged, "its checksum is wrong")
	}
	rest := body[len(magic):]
	var parts [3][]byte
	for i := range parts {
		if len(rest) < 8 {
			return fail(Damaged, "part %d is missing", i)
		}
		n := binary.LittleEndian.Uint64(rest)
		if rest = rest[8:]; n > uint64(len(rest)) {
			return fail(Damaged, "part %d has %d bytes of %d", i, len(rest), n)
		}
		parts[i], rest = rest[:n], rest[n:]
	}
	if len(rest) > 0 {
		return fail(Damaged, "there is more after its end")
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

// The bounds of a step file's parts: a header has some hundred bytes a variable, and compilers
// neither take texts nor give programs of 2 GiB.
const (
	maxHeader = 256 << 20
	maxPart   = 2 << 30
)

// read reads a step file as far as its parts say it goes, so that what is none, and what has no
// end, is not read on. sum is the hash it must have, or "".
func read(r io.Reader, sum string) ([]byte, error) {
	var data bytes.Buffer
	take := func(n int64) error {
		got, err := io.CopyN(&data, r, n)
		if got < n && err == io.EOF {
			return nil // decode says what is missing
		}
		if err != nil {
			return &errkind.Fault{Op: "stepfile: read", Err: err}
		}
		return nil
	}
	finish := func() ([]byte, error) {
		if sum == "" {
			return data.Bytes(), nil
		}
		hash := sha256.Sum256(data.Bytes())
		if found := hex.EncodeToString(hash[:]); !strings.EqualFold(found, sum) {
			return nil, &Error{Reason: Hash, Detail: fmt.Sprintf("its SHA-256 is %s, not %s", found, sum)}
		}
		return data.Bytes(), nil
	}
	if err := take(int64(len(magic))); err != nil {
		return nil, err
	}
	if data.String() != magic {
		return data.Bytes(), nil // decode refuses it
	}
	for _, limit := range []uint64{maxHeader, maxPart, maxPart} {
		at := data.Len()
		if err := take(8); err != nil {
			return nil, err
		}
		if data.Len() < at+8 {
			return finish()
		}
		n := binary.LittleEndian.Uint64(data.Bytes()[at:])
		if n > limit {
			return nil, &Error{Reason: Damaged, Detail: fmt.Sprintf("a part of it has %d bytes, at most %d are read", n, limit)}
		}
		if err := take(int64(n)); err != nil {
			return nil, err
		}
	}
	if err := take(sha256.Size + 1); err != nil { // one byte more shows that it goes on
		return nil, err
	}
	return finish()
}
