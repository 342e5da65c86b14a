package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// perAxis checks that a per-axis setting is absent or has one value per axis.
func perAxis[T any](what string, values []T, rank int) error {
	if len(values) != 0 && len(values) != rank {
		return fmt.Errorf("%s has %d values for rank %d", what, len(values), rank)
	}
	return nil
}

// ReduceWindow reduces each window of x. Missing strides are the window's dimensions, missing
// dilations 1, missing paddings 0.
func (f *Function) ReduceWindow(x compute.Value, reduction compute.ReduceOpType,
	window, strides, inputDilations, windowDilations []int, paddings [][2]int) (compute.Value, error) {
	return f.op("ReduceWindow", with(x), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		shape := in[0].Shape()
		kind, err := combinerOf(reduction)
		if err != nil {
			return nil, err
		}
		if err := windowArgs(shape.Rank(), window, strides, paddings); err != nil {
			return nil, err
		}
		if shape.IsScalar() {
			return in[0], nil
		}
		inputDilations := slices.Clone(inputDilations)
		for axis := range min(len(inputDilations), shape.Rank()) {
			if shape.Dimensions[axis] == 0 && inputDilations[axis] > 0 { // no gaps in nothing; the StableHLO builder sees one less
				inputDilations[axis] = 1
			}
		}
		return f.summed(kind, in, func(in []*stablehlo.Value) (*stablehlo.Value, error) {
			dtype := in[0].Shape().DType
			closure, err := f.combiner(kind, dtype)
			if err != nil {
				return nil, err
			}
			start, err := f.neutral(kind, dtype)
			if err != nil {
				return nil, err
			}
			c := chain{fn: f.fn}
			x := f.padded(&c, in[0], start)
			return c.do(func() (*stablehlo.Value, error) {
				return stablehlo.ReduceWindow(x, start, closure, window, strides, inputDilations, windowDilations, paddings)
			}), c.err
		})
	})
}

func windowArgs(rank int, window, strides []int, paddings [][2]int) error {
	if err := perAxis("window", window, rank); err != nil {
		return err
	}
	if err := perAxis("strides", strides, rank); err != nil {
		return err
	}
	return perAxis("paddings", paddings, rank)
}

// selectAndScatter adds each element of source to the position its window of x selects.
func (f *Function) selectAndScatter(name string, selects combiner, x, source compute.Value,
	window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.op(name, with(x, source), f.adding(func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		shape := in[0].Shape()
		if err := windowArgs(shape.Rank(), window, strides, paddings); err != nil {
			return nil, err
		}
		if v, ok, err := f.scatterByOffset(in[0], in[1], selects, window, strides, paddings); ok || err != nil {
			return v, err
		}
		pick, err := f.combiner(selects, shape.DType)
		if err != nil {
			return nil, err
		}
		add, err := f.combiner(combineSum, shape.DType)
		if err != nil {
			return nil, err
		}
		zero, err := f.neutral(combineSum, shape.DType)
		if err != nil {
			return nil, err
		}
		return stablehlo.SelectAndScatter(in[0], in[1], zero, pick, add, window, strides, paddings)
	}))
}

// maxOffsets bounds the positions in a window that are written out one by one.
const maxOffsets = 128

// scatterByOffset is selectAndScatter of overlapping windows for programs that are partitioned:
// XLA's partitioner loses what windows across two devices' parts select. Each position in the
// windows is compared with their extremes, and takes what no position before it has taken. False
// leaves the op to selectAndScatter.
func (f *Function) scatterByOffset(x, source *stablehlo.Value, selects combiner, window, strides []int,
	paddings [][2]int) (*stablehlo.Value, bool, error) {
	dims, rank := x.Shape().Dimensions, x.Shape().Rank()
	if !f.partitioned() || len(window) != rank || len(strides) != rank || x.Shape().Size() == 0 || source.Shape().Rank() != rank {
		return nil, false, nil // without strides windows do not overlap
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
			return nil, false, nil
		}
		offsets *= window[axis]
		overlap = overlap || strides[axis] < window[axis]
	}
	if !overlap {
		return nil, false, nil
	}
	kind, worst := combineMax, valueLowest
	if selects == selectLessOrEqual {
		kind, worst = combineMin, valueHighest
	}
	closure, err := f.combiner(kind, x.Shape().DType)
	if err != nil {
		return nil, false, err
	}
	c := chain{fn: f.fn}
	zero, start := c.scalar(x.Shape().DType, valueZero), c.scalar(x.Shape().DType, worst)
	own := f.padded(&c, x, start)
	extremes := c.do(func() (*stablehlo.Value, error) {
		return stablehlo.ReduceWindow(own, start, closure, window, strides, nil, nil, paddings)
	})
	padded := f.pad(&c, x, start, slices.Clone(low), slices.Clone(high), slices.Clone(none))
	var taken, sum *stablehlo.Value
	for i := range offsets {
		from, to, end, between := make([]int, rank), make([]int, rank), make([]int, rank), make([]int, rank)
		for axis := rank - 1; axis >= 0; axis-- {
			from[axis], i = i%window[axis], i/window[axis]
			to[axis] = from[axis] + (source.Shape().Dimensions[axis]-1)*strides[axis] + 1
			end[axis], between[axis] = dims[axis]+low[axis]+high[axis]-to[axis], strides[axis]-1
		}
		here := c.do(func() (*stablehlo.Value, error) { return stablehlo.Slice(padded, from, to, strides) })
		hit := c.compare(types.CompareEQ, here, extremes)
		if taken == nil {
			taken = hit
		} else {
			hit = c.binary(stablehlo.And, hit, c.unary(stablehlo.Not, taken))
			taken = c.binary(stablehlo.Or, taken, hit)
		}
		if c.err != nil {
			break
		}
		part := f.pad(&c, c.selects(hit, source, c.broadcast(zero, source.Shape())), zero, from, end, between)
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
	return c.do(func() (*stablehlo.Value, error) { return stablehlo.Slice(sum, low, last, nil) }), true, c.err
}

// SelectAndScatterMax adds each element of source where the largest element of its window of x is:
// the gradient of a max pool.
func (f *Function) SelectAndScatterMax(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("SelectAndScatterMax", selectGreaterOrEqual, x, source, window, strides, paddings)
}

// SelectAndScatterMin adds each element of source where the smallest element of its window of x is.
func (f *Function) SelectAndScatterMin(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("SelectAndScatterMin", selectLessOrEqual, x, source, window, strides, paddings)
}
