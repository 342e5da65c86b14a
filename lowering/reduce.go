package lowering

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// axisOf converts a negative axis, which counts from the end.
func axisOf(axis, rank int) int {
	if axis < -rank || axis >= rank {
		panic(fmt.Errorf("axis %d is outside rank %d", axis, rank))
	}
	if axis < 0 {
		axis += rank
	}
	return axis
}

// reduce combines the elements over axes. Without axes it combines all elements.
func (f *Function) reduce(name string, kind combiner, logicalOnly bool, x compute.Value, axes []int) (compute.Value, error) {
	return f.op(name, with(x), func(in []*stablehlo.Value) *stablehlo.Value {
		if logicalOnly {
			wantBool(in[0])
		}
		shape := in[0].Shape()
		over := indices(shape.Rank())
		if len(axes) > 0 {
			over = make([]int, len(axes))
			for i, axis := range axes {
				over[i] = axisOf(axis, shape.Rank())
			}
		}
		if len(over) == 0 { // a scalar
			return in[0]
		}
		if f.ordered(kind, shape.DType) {
			return f.extreme(kind, in[0], over)
		}
		return f.summed(kind, in, func(in []*stablehlo.Value) *stablehlo.Value {
			return f.reduced(kind, in[0], over)
		})
	})
}

func (f *Function) reduced(kind combiner, x *stablehlo.Value, over []int) *stablehlo.Value {
	closure := f.combiner(kind, x.Shape().DType)
	return must(stablehlo.Reduce(x, f.neutral(kind, x.Shape().DType), closure, over...))
}

// ReduceSum returns the sum over axes. All Reduce methods reduce all axes if none are given.
func (f *Function) ReduceSum(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceSum", combineSum, false, x, axes)
}

// ReduceProduct returns the product over axes.
func (f *Function) ReduceProduct(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceProduct", combineProduct, false, x, axes)
}

// ReduceMax returns the largest element over axes.
func (f *Function) ReduceMax(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceMax", combineMax, false, x, axes)
}

// ReduceMin returns the smallest element over axes.
func (f *Function) ReduceMin(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceMin", combineMin, false, x, axes)
}

// ReduceBitwiseAnd combines the elements over axes with &.
func (f *Function) ReduceBitwiseAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceBitwiseAnd", combineAnd, false, x, axes)
}

// ReduceBitwiseOr combines the elements over axes with |.
func (f *Function) ReduceBitwiseOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceBitwiseOr", combineOr, false, x, axes)
}

// ReduceBitwiseXor combines the elements over axes with ^.
func (f *Function) ReduceBitwiseXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceBitwiseXor", combineXor, false, x, axes)
}

// ReduceLogicalAnd returns whether all elements over axes are true.
func (f *Function) ReduceLogicalAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceLogicalAnd", combineAnd, true, x, axes)
}

// ReduceLogicalOr returns whether any element over axes is true.
func (f *Function) ReduceLogicalOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceLogicalOr", combineOr, true, x, axes)
}

// ReduceLogicalXor returns whether an odd number of elements over axes is true.
func (f *Function) ReduceLogicalXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("ReduceLogicalXor", combineXor, true, x, axes)
}

// ArgMinMax returns the index of the smallest or largest element along axis. The first of equal
// elements wins, and the first NaN wins over all other elements.
func (f *Function) ArgMinMax(x compute.Value, axis int, outputDType dtypes.DType, isMin bool) (compute.Value, error) {
	return f.op("ArgMinMax", with(x), func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		axis := axisOf(axis, shape.Rank())
		if !outputDType.IsInt() || !ir.IsSupported(outputDType) {
			panic(fmt.Errorf("the index dtype must be an integer, got %s", outputDType))
		}
		closure := f.argCombiner(shape.DType, outputDType, isMin)
		worst := valueLowest
		if isMin {
			worst = valueHighest
		}
		c := f.chain()
		positions := shape.Clone()
		positions.DType = outputDType
		counted := must(f.fn.Iota(positions, axis))
		starts := []*stablehlo.Value{c.scalar(outputDType, valueZero), c.scalar(shape.DType, worst)}
		return must(stablehlo.MultiReduce([]*stablehlo.Value{counted, in[0]}, starts, closure, axis))[0]
	})
}

// argCombiner writes the closure that selects one of two (index, value) pairs. NaN wins over every
// other value, and the lower index wins among equal values, so that the order of the combinations
// does not matter.
func (f *Function) argCombiner(value, index dtypes.DType, isMin bool) *stablehlo.Function {
	better := types.CompareGT
	if isMin {
		better = types.CompareLT
	}
	closure := f.fn.Closure()
	args := f.closureArgs(closure, index, value, index, value)
	li, lv, ri, rv := args[0], args[1], args[2], args[3]
	c := chain{closure}
	left := c.compare(better, lv, rv)
	tie := c.compare(types.CompareEQ, lv, rv)
	if value.IsFloat() {
		lnan, rnan := must(isNaN(lv)), must(isNaN(rv))
		left = c.binary(stablehlo.Or, left, c.binary(stablehlo.And, lnan, must(stablehlo.Not(rnan))))
		tie = c.binary(stablehlo.Or, tie, c.binary(stablehlo.And, lnan, rnan))
	}
	lower := c.binary(stablehlo.Minimum, li, ri)
	outIndex := c.selects(left, li, c.selects(tie, lower, ri))
	outValue := c.selects(left, lv, rv)
	check(closure.Return(outIndex, outValue))
	return closure
}

// CumSum returns the running sum along axis, from the start or, with Reverse set, from the end. With
// Exclusive set, the sum at an element does not include the element itself.
func (f *Function) CumSum(x compute.Value, axis int, options compute.CumSumOptions) (compute.Value, error) {
	return f.op("CumSum", with(x), f.adding(func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		axis := axisOf(axis, shape.Rank())
		length := shape.Dimensions[axis]
		if shape.Size() == 0 {
			return in[0]
		}
		zero := f.chain().scalar(shape.DType, valueZero)
		v := in[0]
		if options.Exclusive { // shift by one, so that each element gets the sum before it
			start, end := make([]int, shape.Rank()), make([]int, shape.Rank())
			start[axis], end[axis] = 1, -1
			if options.Reverse {
				start[axis], end[axis] = -1, 1
			}
			v = f.pad(in[0], zero, start, end, make([]int, shape.Rank()))
		}
		window, paddings := make([]int, shape.Rank()), make([][2]int, shape.Rank())
		ones := make([]int, shape.Rank())
		for i := range window {
			window[i], ones[i] = 1, 1
		}
		window[axis] = length
		paddings[axis] = [2]int{length - 1, 0}
		if options.Reverse {
			paddings[axis] = [2]int{0, length - 1}
		}
		return must(stablehlo.ReduceWindow(v, zero, f.combiner(combineSum, shape.DType), window, ones, ones, ones, paddings))
	}))
}
