package input_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestTensorsCheckTheirDimensions(t *testing.T) {
	for _, dims := range [][]int{{2}, {-1}, {3, -1, 0}, {math.MaxInt, math.MaxInt}} {
		_, err := input.NewTensor([]int32{1, 2, 3}, dims...)
		assert.Error(t, err, "%v", dims)
	}
	_, err := input.Zeros(input.Float64, math.MaxInt/8)
	assert.Error(t, err)
	_, err = input.Zeros(input.Invalid, 1)
	assert.Error(t, err)
	empty, err := input.Zeros(input.Complex64, 0, math.MaxInt, 7)
	require.NoError(t, err)
	assert.Zero(t, empty.Len())
	var zero input.Tensor
	assert.True(t, zero.IsZero())
	assert.Nil(t, zero.Flat())
	assert.Nil(t, zero.Bytes())
	_, err = zero.Rows(0, 0)
	assert.Error(t, err)
}

func TestRowsAreViews(t *testing.T) {
	x, err := input.NewTensor([]int16{1, 2, 3, 4, 5, 6}, 3, 2)
	require.NoError(t, err)
	rows, err := x.Rows(1, 3)
	require.NoError(t, err)
	assert.Equal(t, []int16{3, 4, 5, 6}, rows.Flat())
	assert.Equal(t, []int{2, 2}, rows.Dims())
	for _, bad := range [][2]int{{-1, 0}, {2, 1}, {0, 4}} {
		_, err := x.Rows(bad[0], bad[1])
		assert.Error(t, err)
	}
	back, err := input.FromBytes(input.Int16, rows.Bytes(), 2, 2)
	require.NoError(t, err)
	assert.Equal(t, rows.Flat(), back.Flat())
	_, err = input.FromBytes(input.Bool, []byte{2}, 1)
	assert.Error(t, err)
	_, err = input.FromBytes(input.Int16, []byte{1}, 1)
	assert.Error(t, err)
	_, err = input.FromBytes(input.String, nil, 0)
	assert.Error(t, err)
	_, err = input.Flat[int32](x)
	assert.ErrorContains(t, err, "int16")
}
