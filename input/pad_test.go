package input_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestPadAddsZeroRowsAndMasksThem(t *testing.T) {
	matrix, err := input.NewTensor([]float32{1, 2, 3, 4}, 2, 2)
	require.NoError(t, err)
	e := input.Tuple(input.Leaf(matrix), input.Leaf(input.Vector("a", "b")), input.Leaf(input.Vector(true, true)))
	got, mask, err := input.Pad(e, 3)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, true, false}, mask.Flat())
	assert.Equal(t, []float32{1, 2, 3, 4, 0, 0}, got.At(0).Leaf().Flat())
	assert.Equal(t, []int{3, 2}, got.At(0).Leaf().Dims())
	assert.Equal(t, []string{"a", "b", ""}, got.At(1).Leaf().Flat())
	assert.Equal(t, []bool{true, true, false}, got.At(2).Leaf().Flat())
	assert.Equal(t, []float32{1, 2, 3, 4}, matrix.Flat(), "the batch itself is as before")

	same, mask, err := input.Pad(e, 2)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, true}, mask.Flat())
	assert.Equal(t, e, same)

	_, _, err = input.Pad(e, 1)
	assert.ErrorContains(t, err, "does not fit")
	_, _, err = input.Pad(input.Leaf(input.Scalar[int32](1)), 1)
	var unbatched *input.NotBatchedError
	assert.ErrorAs(t, err, &unbatched)
	_, _, err = input.Pad(input.Element{}, 1)
	assert.Error(t, err)
}

func TestPadStepBringsReplicasToOneSize(t *testing.T) {
	step := input.Step{Replicas: []input.Element{input.Leaf(input.Vector[int32](1, 2)), input.Leaf(input.Vector[int32]())}}
	_, uniform := input.Uniform(step)
	assert.False(t, uniform)
	for _, rows := range []int{0, 2} {
		got, masks, err := input.PadStep(step, rows)
		require.NoError(t, err)
		assert.Equal(t, []int32{0, 0}, got.Replicas[1].Leaf().Flat())
		assert.Equal(t, []bool{false, false}, masks[1].Flat())
		size, uniform := input.Uniform(got)
		assert.True(t, uniform)
		assert.Equal(t, 2, size)
	}
	_, _, err := input.PadStep(step, 1)
	assert.Error(t, err)
	_, uniform = input.Uniform(input.Step{})
	assert.False(t, uniform)
}

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

func TestNestsVisitKeysInOrder(t *testing.T) {
	n := input.Dict(map[string]input.Nest[int]{"b": input.Tuple(input.Leaf(1), input.Leaf(2)), "a": input.Leaf(3)})
	assert.Equal(t, []int{3, 1, 2}, n.Leaves())
	assert.Equal(t, []string{".a", ".b[0]", ".b[1]"}, n.Paths())
	assert.Equal(t, "{a: 3, b: (1, 2)}", n.String())
	_, ok := n.Get("c")
	assert.False(t, ok)
	assert.True(t, n.At(9).IsZero())
	doubled, err := input.MapNest(n, func(_ string, v int) (int, error) { return 2 * v, nil })
	require.NoError(t, err)
	assert.Equal(t, "{a: 6, b: (2, 4)}", doubled.String())
}
