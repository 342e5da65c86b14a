package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// Gather takes slices of x at computed positions, as XLA's Gather without batching axes.
func (f *Function) Gather(x, starts compute.Value, indexVectorAxis int,
	offsetOutputAxes, collapsedSliceAxes, startIndexMap, sliceSizes []int, indicesAreSorted bool) (compute.Value, error) {
	return f.op("Gather", with(x, starts), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		return stablehlo.Gather(in[0], in[1], indexVectorAxis, offsetOutputAxes, collapsedSliceAxes,
			nil, nil, startIndexMap, sliceSizes, indicesAreSorted)
	})
}

// scatter combines updates into x at computed positions, as XLA's Scatter without batching axes.
func (f *Function) scatter(name string, kind combiner, x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.op(name, with(x, positions, updates), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		closure, err := f.combiner(kind, in[0].Shape().DType)
		if err != nil {
			return nil, err
		}
		return stablehlo.Scatter(in[0], in[1], in[2], updateWindowAxes, insertedWindowAxes, nil, nil,
			scatterAxesToOperandAxes, indexVectorAxis, indicesAreSorted, uniqueIndices, closure)
	})
}

// ScatterSum adds updates into x.
func (f *Function) ScatterSum(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterSum", combineSum, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMax keeps the larger of x and the updates.
func (f *Function) ScatterMax(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterMax", combineMax, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}

// ScatterMin keeps the smaller of x and the updates.
func (f *Function) ScatterMin(x, positions, updates compute.Value, indexVectorAxis int,
	updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes []int, indicesAreSorted, uniqueIndices bool) (compute.Value, error) {
	return f.scatter("ScatterMin", combineMin, x, positions, updates, indexVectorAxis,
		updateWindowAxes, insertedWindowAxes, scatterAxesToOperandAxes, indicesAreSorted, uniqueIndices)
}
