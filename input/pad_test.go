package input_test

import (
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
	assert.ErrorIs(t, err, input.ErrNotBatched)
	_, _, err = input.Pad(input.Element{}, 1)
	assert.Error(t, err)
}

func TestPadStepBringsReplicasToOneSize(t *testing.T) {
	step := input.Step{Replicas: []input.Element{input.Leaf(input.Vector[int32](1, 2)), input.Leaf(input.Vector[int32]())}}
	for _, rows := range []int{0, 2} {
		got, masks, err := input.PadStep(step, rows)
		require.NoError(t, err)
		assert.Equal(t, []int32{0, 0}, got.Replicas[1].Leaf().Flat())
		assert.Equal(t, []bool{false, false}, masks[1].Flat())
		for _, e := range got.Replicas {
			assert.Equal(t, 2, e.Leaf().Dims()[0])
		}
	}
	_, _, err := input.PadStep(step, 1)
	assert.Error(t, err)
}
