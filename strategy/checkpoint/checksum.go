package checkpoint

import (
	"fmt"
	"hash/crc32"
)

// checksum is a CRC-32C checksum. Its text form is eight hexadecimal digits.
type checksum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c checksum) update(p []byte) checksum { return checksum(crc32.Update(uint32(c), castagnoli, p)) }

func (c checksum) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText implements encoding.TextMarshaler.
func (c checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *checksum) UnmarshalText(text []byte) error {
	var v uint32
	if n, err := fmt.Sscanf(string(text), "%08x", &v); err != nil || n != 1 || checksum(v).String() != string(text) {
		return formatError("checksum %q is not eight hexadecimal digits", text)
	}
	*c = checksum(v)
	return nil
}
