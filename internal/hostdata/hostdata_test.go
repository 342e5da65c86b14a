package hostdata

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPackInvertsUnpack(t *testing.T) {
	for d := range pjrtTypes {
		if !d.IsPacked() {
			continue
		}
		for length := range 20 {
			packed := make([]byte, d.SizeForDimensions(length))
			for i := range packed {
				packed[i] = byte(37*i + 91*length)
			}
			if n := length * d.Bits() % 8; n != 0 { // bits beyond the last element are not kept
				packed[len(packed)-1] &= 1<<n - 1
			}
			again := make([]byte, len(packed))
			Pack(again, Unpack(packed, d, length), d)
			assert.Equal(t, packed, again, "%s, %d elements", d, length)
		}
	}
}
