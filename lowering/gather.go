package lowering

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// Gather reads slices of x at computed positions, like XLA's Gather without batching axes.
func (f *Function) Gather(x, starts compute.Value, indexVectorAxis int,
	offsetOutputAxes, collapsedSliceAxes, startIndexMap, sliceSizes []int, indicesAreSorted bool) (compute.Value, error) {
	return f.op("Gather", with(x, starts), func(in []*stablehlo.Value) *stablehlo.Value {
		at := f.chain().wideIndex(in[1])
		return must(stablehlo.Gather(f.replicate(in[0]), at, indexVectorAxis, offsetOutputAxes, collapsedSliceAxes,
			nil, nil, startIndexMap, sliceSizes, indicesAreSorted))
	})
}

// replicate replicates an operand of a gather or a scatter in programs for which XLA's partitioner
// fails on a split operand.
func (f *Function) replicate(x *stablehlo.Value) *stablehlo.Value {
	if len(f.builder.meshes) > 0 {
		return f.replicateInGrids(x)
	}
	if replicate := f.builder.backend.opts.Replicate; replicate != nil {
		return must(replicate(f, x))
	}
	return x
}

// wideIndex converts indices to a wide signed type. Some XLA passes read large unsigned indices as
// negative numbers, and other passes require that the dimension fits into the index type. Uint64
// indices are limited to the largest Int64, which is past the end of any axis.
func (c chain) wideIndex(x *stablehlo.Value) *stablehlo.Value {
	d := x.Shape().DType
	if d.IsInt() && d.Bits() < 32 {
		return c.convert(x, dtypes.Int32)
	}
	switch d {
	case dtypes.Uint32:
		return c.convert(x, dtypes.Int64)
	case dtypes.Uint64:
		largest := c.number(d, signed(int64(math.MaxInt64)))
		return c.convert(c.binary(stablehlo.Minimum, x, largest), dtypes.Int64)
	}
	return x
}

// scatter combines updates into x at computed positions, like XLA's Scatter without batching axes.
func (f *Function) scatter(name string, kind combiner, x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.op(name, with(x, positions, updates), func(in []*stablehlo.Value) *stablehlo.Value {
		at := f.replicate(f.chain().wideIndex(in[1]))
		updates := f.replicate(in[2])
		return f.summed(kind, []*stablehlo.Value{in[0], updates}, func(in []*stablehlo.Value) *stablehlo.Value {
			return must(stablehlo.Scatter(in[0], at, in[1], updateWindowAxes, insertedWindowAxes, nil, nil,
				scatterAxesToOperandAxes, indexVectorAxis, indicesAreSorted, uniqueIndices, f.combiner(kind, in[0].Shape().DType)))
		})
	})
}

// ScatterSum adds updates to x at computed positions.
func (f *Function) ScatterSum(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterSum", combineSum, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMax writes the maximum of x and the updates at computed positions.
func (f *Function) ScatterMax(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterMax", combineMax, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMin writes the minimum of x and the updates at computed positions.
func (f *Function) ScatterMin(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterMin", combineMin, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}
