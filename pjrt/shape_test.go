package pjrt

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShapeBytes(t *testing.T) {
	for want, s := range map[int]TensorType{
		64: {F32, []int{2, 8}}, 4: {F32, nil}, 0: {F64, []int{math.MaxInt, math.MaxInt, 0}}, 16: {S4, []int{16}},
	} {
		shape, err := newShape(s.DType, s.Dims)
		require.NoError(t, err)
		assert.Equal(t, want, shape.hostBytes, "%v", shape)
		assert.True(t, shape.matches(s.DType, s.Dims))
		assert.False(t, shape.matches(s.DType, append([]int{1}, s.Dims...)))
		assert.False(t, shape.matches(U16, s.Dims))
	}
	shape, err := newShape(F32, []int{2, 8})
	require.NoError(t, err)
	assert.Equal(t, "F32[2,8]", shape.String())
	shape.intDims[0] = 9 // as a caller could do
	assert.True(t, shape.matches(F32, []int{2, 8}))
}

func TestInvalidShapes(t *testing.T) {
	for want, s := range map[string]TensorType{
		"element type TOKEN has no representation in host memory":     {Token, nil},
		"rank 65 is larger than the limit of 64":                      {F32, make([]int, maxRank+1)},
		"dimension 1 is negative: -3":                                 {F32, []int{2, -3}},
		"F32[2 4611686018427387904] is larger than the address space": {F32, []int{2, math.MaxInt/2 + 1}},
	} {
		_, err := newShape(s.DType, s.Dims)
		assert.EqualError(t, err, want)
		assert.NotNil(t, newShapeInt64(s.DType, nil), "a plugin can report such a shape")
	}
}
