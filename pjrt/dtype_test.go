package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestDTypes(t *testing.T) {
	assert.Equal(t, "F32", pjrt.F32.String())
	assert.Equal(t, "DType(99)", pjrt.DType(99).String())
	assert.Equal(t, "DType(-1)", pjrt.DType(-1).String())
	for dtype, bits := range map[pjrt.DType]int{pjrt.Pred: 8, pjrt.S4: 4, pjrt.U2: 2, pjrt.U1: 1, pjrt.BF16: 16,
		pjrt.C128: 128, pjrt.F4E2M1FN: 4, pjrt.Token: 0, pjrt.Invalid: 0, 99: 0, -1: 0} {
		assert.Equal(t, bits, dtype.Bits(), "%v", dtype)
		assert.Equal(t, (bits+7)/8, dtype.HostBytes(), "%v", dtype)
	}
	assert.Equal(t, []byte{1, 0, 2, 0}, pjrt.Bytes([]uint16{1, 2}))
	assert.Empty(t, pjrt.Bytes([]float64(nil)))
	s := []int32{0}
	pjrt.Bytes(s)[0] = 5
	assert.EqualValues(t, 5, s[0], "a view, not a copy")
}
