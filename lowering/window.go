package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// perAxis checks that a per-axis setting is absent or has one value per axis.
func perAxis[T any](what string, values []T, rank int) error {
	if len(values) != 0 && len(values) != rank {
		return fmt.Errorf("%s has %d values for rank %d", what, len(values), rank)
	}
	return nil
}

// ReduceWindow reduces each window of x. Missing strides are the window's dimensions, missing dilations 1,
// missing paddings 0.
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
		closure, err := f.combiner(kind, shape.DType)
		if err != nil {
			return nil, err
		}
		start, err := f.neutral(kind, shape.DType)
		if err != nil {
			return nil, err
		}
		return stablehlo.ReduceWindow(in[0], start, closure, window, strides, inputDilations, windowDilations, paddings)
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
	return f.op(name, with(x, source), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		shape := in[0].Shape()
		if err := windowArgs(shape.Rank(), window, strides, paddings); err != nil {
			return nil, err
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
	})
}

// SelectAndScatterMax adds each element of source where the largest element of its window of x is: the
// gradient of a max pool.
func (f *Function) SelectAndScatterMax(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("SelectAndScatterMax", selectGreaterOrEqual, x, source, window, strides, paddings)
}

// SelectAndScatterMin adds each element of source where the smallest element of its window of x is.
func (f *Function) SelectAndScatterMin(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("SelectAndScatterMin", selectLessOrEqual, x, source, window, strides, paddings)
}
