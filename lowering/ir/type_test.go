package ir_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestTypesAreWrittenAsTheBuilderWritesThem(t *testing.T) {
	for _, d := range []dtypes.DType{
		dtypes.Bool, dtypes.Int2, dtypes.Int4, dtypes.Int8, dtypes.Int16, dtypes.Int32, dtypes.Int64,
		dtypes.Uint2, dtypes.Uint4, dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64,
		dtypes.Float16, dtypes.BFloat16, dtypes.Float32, dtypes.Float64, dtypes.Complex64, dtypes.Complex128,
	} {
		for _, dims := range [][]int{nil, {0}, {8, 4}} {
			assert.Equal(t, xshapes.Make(d, dims...).ToStableHLO(), ir.TensorType(d, dims...).String())
		}
	}
	assert.Equal(t, "tensor<?x2xf32>", ir.TensorType(dtypes.Float32, -1, 2).String())
}

func TestTypesOfOthers(t *testing.T) {
	x := ir.TensorType(dtypes.Float32, 8, 4)
	assert.Equal(t, ir.TensorType(dtypes.Float32, 2, 8, 4), x.Stacked(2))
	assert.Equal(t, ir.TensorType(dtypes.Float32), x.ElementType())
	assert.True(t, x.Equal(x.ElementType().WithDims(8, 4)))
	assert.False(t, x.Equal(ir.TensorType(dtypes.Int32, 8, 4)))
	assert.False(t, x.IsEmpty())
	assert.True(t, x.WithDims(3, 0).IsEmpty())
}
