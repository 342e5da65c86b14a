package gomlxdata_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
)

func TestTensorsOfAllKindsConvertBothWays(t *testing.T) {
	for _, x := range []input.Tensor{
		input.Vector(true, false), input.Vector[int8](-1, 2), input.Vector[int16](-3), input.Vector[int32](4),
		input.Scalar[int64](-5),
		input.Vector[uint8](6), input.Vector[uint16](7), input.Vector[uint32](8), input.Vector[uint64](9),
		input.Vector(float16.FromFloat32(1.5)), input.Vector(bfloat16.FromFloat32(-2)), input.Vector[float32](1, 2),
		input.Vector(3.5),
		input.Vector[complex64](1i), input.Vector[complex128](2i), input.Vector[float32](),
	} {
		y, err := gomlxdata.ToTensor(x)
		require.NoError(t, err, x)
		dtype, _ := x.Kind().DType()
		assert.True(t, y.Shape().Equal(shapes.Make(dtype, x.Dims()...)))
		back, err := gomlxdata.FromTensor(y)
		require.NoError(t, err, x)
		assert.Equal(t, fmt.Sprint(x.Flat()), fmt.Sprint(back.Flat()), x)
		assert.Equal(t, x.Spec(), back.Spec())
	}
	_, err := gomlxdata.ToTensor(input.Scalar("text"))
	assert.ErrorContains(t, err, "string")
	_, err = gomlxdata.FromTensor(tensors.FromShape(shapes.Make(dtypes.Int4, 2)))
	assert.ErrorContains(t, err, "cannot hold")
}
