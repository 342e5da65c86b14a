package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// checkPerAxis panics unless values is empty or has one element per axis.
func checkPerAxis[T any](what string, values []T, rank int) {
	if len(values) != 0 && len(values) != rank {
		panic(fmt.Errorf("%s has %d values for rank %d", what, len(values), rank))
	}
}

// ReduceWindow reduces each window of x. By default, strides are the window's dimensions, dilations
// are 1, and paddings are 0.
func (f *Function) ReduceWindow(x compute.Value, reduction compute.ReduceOpType,
	window, strides, inputDilations, windowDilations []int, paddings [][2]int) (compute.Value, error) {
	return f.addOp("ReduceWindow", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		kind := combinerOf(reduction)
		checkWindowArgs(shape.Rank(), window, strides, paddings)
		if shape.IsScalar() {
			return in[0]
		}
		inputDilations := slices.Clone(inputDilations)
		for axis := range min(len(inputDilations), shape.Rank()) {
			if shape.Dimensions[axis] == 0 && inputDilations[axis] > 0 { // an empty axis has no gaps
				inputDilations[axis] = 1
			}
		}
		return f.sumInAccumulator(kind, in, func(in []*stablehlo.Value) *stablehlo.Value {
			dtype := in[0].Shape().DType
			closure, start := f.combiner(kind, dtype), f.neutral(kind, dtype)
			return must(stablehlo.ReduceWindow(f.addFillBarrier(in[0], start), start, closure, window, strides, inputDilations,
				windowDilations, paddings))
		})
	})
}

func checkWindowArgs(rank int, window, strides []int, paddings [][2]int) {
	checkPerAxis("window", window, rank)
	checkPerAxis("strides", strides, rank)
	checkPerAxis("paddings", paddings, rank)
}

// addSelectAndScatter adds each element of source to one position in the corresponding window of x.
// selects combines the elements of the window, such as a maximum, and thereby selects the position.
func (f *Function) addSelectAndScatter(name string, selects combiner, x, source compute.Value,
	window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.addOp(name, valueList(x, source), f.accumulate(func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		checkWindowArgs(shape.Rank(), window, strides, paddings)
		if v := f.scatterByOffset(in[0], in[1], selects, window, strides, paddings); v != nil {
			return v
		}
		pick, add := f.combiner(selects, shape.DType), f.combiner(combineSum, shape.DType)
		return must(stablehlo.SelectAndScatter(in[0], in[1], f.neutral(combineSum, shape.DType), pick, add, window, strides,
			paddings))
	}))
}

// maxOffsets is the maximum number of window positions that scatterByOffset handles.
const maxOffsets = 128

// scatterByOffset implements addSelectAndScatter without StableHLO's op, for overlapping windows in
// partitioned programs. XLA's partitioner drops selected elements of windows that cross two shards.
// scatterByOffset compares each position of the windows with the window's maximum or minimum, and
// adds the element of source at the first match. It returns nil if StableHLO's op can be used or
// there are too many positions.
func (f *Function) scatterByOffset(x, source *stablehlo.Value, selects combiner, window, strides []int,
	paddings [][2]int) *stablehlo.Value {
	dims, rank := x.Shape().Dimensions, x.Shape().Rank()
	if !f.isPartitioned() || len(window) != rank || len(strides) != rank || x.Shape().Size() == 0 ||
		source.Shape().Rank() != rank {
		return nil // without strides windows do not overlap
	}
	low, high, none := make([]int, rank), make([]int, rank), make([]int, rank)
	offsets, overlap := 1, false
	for axis := range rank {
		if len(paddings) > 0 {
			low[axis], high[axis] = paddings[axis][0], paddings[axis][1]
		}
		room := dims[axis] + low[axis] + high[axis] - window[axis]
		if low[axis] < 0 || high[axis] < 0 || window[axis] < 1 || strides[axis] < 1 || room < 0 ||
			source.Shape().Dimensions[axis] != room/strides[axis]+1 || offsets > maxOffsets/window[axis] {
			return nil
		}
		offsets *= window[axis]
		overlap = overlap || strides[axis] < window[axis]
	}
	if !overlap {
		return nil
	}
	kind, worst := combineMax, valueLowest
	if selects == selectLessOrEqual {
		kind, worst = combineMin, valueHighest
	}
	closure, c := f.combiner(kind, x.Shape().DType), f.opBuilder()
	zero, start := c.specialConstant(x.Shape().DType, valueZero), c.specialConstant(x.Shape().DType, worst)
	extremes := must(stablehlo.ReduceWindow(f.addFillBarrier(x, start), start, closure, window, strides, nil, nil,
		paddings))
	padded := f.addPad(x, start, slices.Clone(low), slices.Clone(high), slices.Clone(none))
	var taken, sum *stablehlo.Value
	for i := range offsets {
		from, to, end, between := make([]int, rank), make([]int, rank), make([]int, rank), make([]int, rank)
		for axis := rank - 1; axis >= 0; axis-- {
			from[axis], i = i%window[axis], i/window[axis]
			to[axis] = from[axis] + (source.Shape().Dimensions[axis]-1)*strides[axis] + 1
			end[axis], between[axis] = dims[axis]+low[axis]+high[axis]-to[axis], strides[axis]-1
		}
		here := must(stablehlo.Slice(padded, from, to, strides))
		hit := c.compare(types.CompareEQ, here, extremes)
		if taken == nil {
			taken = hit
		} else {
			hit = c.binary(stablehlo.And, hit, must(stablehlo.Not(taken)))
			taken = c.binary(stablehlo.Or, taken, hit)
		}
		part := f.addPad(c.selectElements(hit, source, c.broadcast(zero, source.Shape())), zero, from, end, between)
		if sum == nil {
			sum = part
		} else {
			sum = c.binary(stablehlo.Add, sum, part)
		}
	}
	last := make([]int, rank)
	for axis := range last {
		last[axis] = low[axis] + dims[axis]
	}
	return c.slice(sum, low, last)
}

// SelectAndScatterMax adds each element of source at the position of the largest element of its
// window of x. It computes the gradient of max pooling.
func (f *Function) SelectAndScatterMax(x, source compute.Value, window, strides []int,
	paddings [][2]int) (compute.Value, error) {
	return f.addSelectAndScatter("SelectAndScatterMax", selectGreaterOrEqual, x, source, window, strides, paddings)
}

// SelectAndScatterMin adds each element of source at the position of the smallest element of its
// window of x.
func (f *Function) SelectAndScatterMin(x, source compute.Value, window, strides []int,
	paddings [][2]int) (compute.Value, error) {
	return f.addSelectAndScatter("SelectAndScatterMin", selectLessOrEqual, x, source, window, strides, paddings)
}
