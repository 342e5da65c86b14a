package checkpoint

import (
	"fmt"
	"hash/crc32"
)

// checksum is a CRC-32C, written as eight hexadecimal digits.
type checksum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c checksum) plus(p []byte) checksum { return checksum(crc32.Update(uint32(c), castagnoli, p)) }

// then is the checksum of bytes of checksum c, followed by n bytes of checksum next.
func (c checksum) then(next checksum, n int64) checksum {
	shift := uint32(1) << 31 // x^0, as the lowest power is the highest bit
	for k := 3; n > 0; n, k = n>>1, k+1 {
		if n&1 == 1 {
			shift = times(powers[k], shift)
		}
	}
	return checksum(times(shift, uint32(c))) ^ next
}

// powers are x^(2^k) modulo the polynomial of the checksum.
var powers = func() (p [67]uint32) {
	p[0] = 1 << 30
	for k := 1; k < len(p); k++ {
		p[k] = times(p[k-1], p[k-1])
	}
	return p
}()

// times multiplies two polynomials modulo that of the checksum.
func times(a, b uint32) (product uint32) {
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		if b&1 == 1 {
			b = b>>1 ^ crc32.Castagnoli
		} else {
			b >>= 1
		}
	}
	return product
}

func (c checksum) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText writes the digits.
func (c checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the digits.
func (c *checksum) UnmarshalText(text []byte) error {
	var v uint32
	if n, err := fmt.Sscanf(string(text), "%08x", &v); err != nil || n != 1 || checksum(v).String() != string(text) {
		return malformed("checksum %q is not eight hexadecimal digits", text)
	}
	*c = checksum(v)
	return nil
}
