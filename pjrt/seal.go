package pjrt

import (
	"bytes"
	"crypto/sha256"
	"slices"
)

// serialMagic starts a serialized executable.
const serialMagic = "TPUSTRATEGY EXE1"

// seal puts magic and checksum before a plugin's bytes. Plugins map those as machine code after few
// checks of their own: one wrong bit can end the process.
func seal(b []byte) []byte {
	sum := sha256.Sum256(b)
	return slices.Concat([]byte(serialMagic), sum[:], b)
}

// unseal is the inverse of seal.
func unseal(b []byte) ([]byte, error) {
	const head = len(serialMagic) + sha256.Size
	fail := func(reason string) error {
		return &CompileError{Field: "serialized executable", Reason: reason, Hint: "compile the program again"}
	}
	if len(b) < head || string(b[:len(serialMagic)]) != serialMagic {
		return nil, fail("it was not written by Executable.Serialize")
	}
	if sum := sha256.Sum256(b[head:]); !bytes.Equal(sum[:], b[len(serialMagic):head]) {
		return nil, fail("its checksum is wrong: it was cut short or changed")
	}
	return b[head:], nil
}
