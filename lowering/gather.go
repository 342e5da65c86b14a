package lowering

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// Gather returns slices of x at computed indices. It is StableHLO's gather without batching
// dimensions.
func (f *Function) Gather(x, starts compute.Value, indexVectorAxis int,
	offsetOutputAxes, collapsedSliceAxes, startIndexMap, sliceSizes []int, indicesAreSorted bool) (compute.Value, error) {
	return f.addOp("Gather", valueList(x, starts), func(in []*stablehlo.Value) *stablehlo.Value {
		at := f.opBuilder().widenIndices(in[1])
		return must(stablehlo.Gather(f.replicateOperand(in[0]), at, indexVectorAxis, offsetOutputAxes, collapsedSliceAxes,
			nil, nil, startIndexMap, sliceSizes, indicesAreSorted))
	})
}

// replicateOperand replicates an operand of a gather or scatter over all devices, if XLA's
// partitioner would fail on a sharded operand.
func (f *Function) replicateOperand(x *stablehlo.Value) *stablehlo.Value {
	if len(f.builder.meshes) > 0 {
		return f.replicateOnGrid(x)
	}
	if replicate := f.builder.backend.opts.Replicate; replicate != nil {
		return must(replicate(f, x))
	}
	return x
}

// widenIndices converts indices to a wider signed dtype. Some XLA passes read large unsigned
// indices as negative numbers, and others require that the axis size fits into the index dtype.
// Uint64 indices are limited to the largest Int64, which is past the end of any axis.
func (c opBuilder) widenIndices(x *stablehlo.Value) *stablehlo.Value {
	d := x.Shape().DType
	if d.IsInt() && d.Bits() < 32 {
		return c.convert(x, dtypes.Int32)
	}
	switch d {
	case dtypes.Uint32:
		return c.convert(x, dtypes.Int64)
	case dtypes.Uint64:
		largest := c.constant(d, signedNumber(int64(math.MaxInt64)))
		return c.convert(c.binary(stablehlo.Minimum, x, largest), dtypes.Int64)
	}
	return x
}

// addScatter adds an op that combines updates with the elements of x at computed indices. The op is
// StableHLO's scatter without batching dimensions.
func (f *Function) addScatter(name string, kind combiner, x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted,
	uniqueIndices bool) (compute.Value, error) {
	return f.addOp(name, valueList(x, positions, updates), func(in []*stablehlo.Value) *stablehlo.Value {
		at := f.replicateOperand(f.opBuilder().widenIndices(in[1]))
		updates := f.replicateOperand(in[2])
		return f.sumInAccumulator(kind, []*stablehlo.Value{in[0], updates}, func(in []*stablehlo.Value) *stablehlo.Value {
			return must(stablehlo.Scatter(in[0], at, in[1], updateWindowAxes, insertedWindowAxes, nil, nil,
				scatterAxesToOperandAxes, indexVectorAxis, indicesAreSorted, uniqueIndices, f.combiner(kind, in[0].Shape().DType)))
		})
	})
}

// ScatterSum adds updates to x at computed indices.
func (f *Function) ScatterSum(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted,
	uniqueIndices bool) (compute.Value, error) {
	return f.addScatter("ScatterSum", combineSum, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMax replaces elements of x at computed indices by the maximum of the element and the
// update.
func (f *Function) ScatterMax(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted,
	uniqueIndices bool) (compute.Value, error) {
	return f.addScatter("ScatterMax", combineMax, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMin replaces elements of x at computed indices by the minimum of the element and the
// update.
func (f *Function) ScatterMin(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted,
	uniqueIndices bool) (compute.Value, error) {
	return f.addScatter("ScatterMin", combineMin, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}
