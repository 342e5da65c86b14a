package pjrt

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAShapeHasTheBytesOfItsElements(t *testing.T) {
	for want, s := range map[int]TensorType{
		64: {F32, []int{2, 8}}, 4: {F32, nil}, 0: {F64, []int{math.MaxInt, math.MaxInt, 0}}, 16: {S4, []int{16}},
	} {
		shape, err := newShape(s.DType, s.Dims)
		require.NoError(t, err)
		assert.Equal(t, want, shape.bytes, "%v", shape)
		assert.True(t, shape.is(s.DType, s.Dims))
		assert.False(t, shape.is(s.DType, append([]int{1}, s.Dims...)))
		assert.False(t, shape.is(U16, s.Dims))
	}
	shape, err := newShape(F32, []int{2, 8})
	require.NoError(t, err)
	assert.Equal(t, "F32[2,8]", shape.String())
	shape.view[0] = 9 // a caller's write
	assert.True(t, shape.is(F32, []int{2, 8}))
}

func TestShapesThatNoMemoryHolds(t *testing.T) {
	for says, s := range map[string]TensorType{
		"element type TOKEN cannot be held in host memory":                      {Token, nil},
		"rank 65 is over the limit of 64":                                       {F32, make([]int, maxRank+1)},
		"dimension 1 is negative: -3":                                           {F32, []int{2, -3}},
		"F32[2 4611686018427387904] overflows the address space at dimension 1": {F32, []int{2, math.MaxInt/2 + 1}},
	} {
		_, err := newShape(s.DType, s.Dims)
		assert.EqualError(t, err, says)
		assert.NotNil(t, shapeOf64(s.DType, nil), "a plugin may name it all the same")
	}
}
