package stepfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rewrite changes the header of a step file and updates its checksum.
func Rewrite(t testing.TB, file []byte, old, new string) []byte {
	t.Helper()
	at := len(magic)
	n := int(binary.LittleEndian.Uint64(file[at:]))
	header := string(file[at+8 : at+8+n])
	require.Contains(t, header, old)
	header = strings.Replace(header, old, new, 1)
	var b bytes.Buffer
	b.WriteString(magic)
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(header)))
	b.Write(size[:])
	b.WriteString(header)
	b.Write(file[at+8+n : len(file)-sha256.Size])
	return appendSum(b.Bytes())
}

func appendSum(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

// Resum updates the checksum of a file.
func Resum(file []byte) []byte {
	if len(file) < sha256.Size {
		return appendSum(bytes.Clone(file))
	}
	return appendSum(bytes.Clone(file[:len(file)-sha256.Size]))
}

// Encode returns a step file with any header.
func Encode(header, text, program []byte) []byte {
	b := []byte(magic)
	for _, part := range [][]byte{header, text, program} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return appendSum(b)
}

// Decode reads a step file as far as possible without devices.
func Decode(file []byte) error {
	h, text, program, err := decode(bytes.NewReader(file), "")
	if err != nil {
		return err
	}
	if _, err := h.decodeStep(text, program); err != nil {
		return &Error{Reason: Damaged, Err: err}
	}
	return nil
}
