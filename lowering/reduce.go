package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// normalizeAxis returns the index of an axis. A negative axis counts from the last.
func normalizeAxis(axis, rank int) int {
	if axis < -rank || axis >= rank {
		panic(fmt.Errorf("axis %d is outside rank %d", axis, rank))
	}
	if axis < 0 {
		axis += rank
	}
	return axis
}

// addReduction combines the elements over axes, or all elements if axes is empty.
func (f *Function) addReduction(name string, kind combiner, logicalOnly bool, x compute.Value,
	axes []int) (compute.Value, error) {
	return f.addOp(name, valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		if logicalOnly {
			requireBool(in[0])
		}
		shape := in[0].Shape()
		over := indices(shape.Rank())
		if len(axes) > 0 {
			over = make([]int, len(axes))
			for i, axis := range axes {
				over[i] = normalizeAxis(axis, shape.Rank())
			}
		}
		if len(over) == 0 { // a scalar
			return in[0]
		}
		if f.reducesAsIntegers(kind, shape.DType) {
			return f.reduceAsIntegers(kind, in[0], over)
		}
		return f.sumInAccumulator(kind, in, func(in []*stablehlo.Value) *stablehlo.Value {
			return f.reduceOp(kind, in[0], over)
		})
	})
}

func (f *Function) reduceOp(kind combiner, x *stablehlo.Value, over []int) *stablehlo.Value {
	closure := f.combiner(kind, x.Shape().DType)
	return must(stablehlo.Reduce(x, f.neutral(kind, x.Shape().DType), closure, over...))
}

// ReduceSum returns the sum over axes. Without axes, all Reduce methods reduce over all axes.
func (f *Function) ReduceSum(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceSum", combineSum, false, x, axes)
}

// ReduceProduct returns the product over axes.
func (f *Function) ReduceProduct(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceProduct", combineProduct, false, x, axes)
}

// ReduceMax returns the largest element over axes.
func (f *Function) ReduceMax(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceMax", combineMax, false, x, axes)
}

// ReduceMin returns the smallest element over axes.
func (f *Function) ReduceMin(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceMin", combineMin, false, x, axes)
}

// ReduceBitwiseAnd combines the elements over axes with &.
func (f *Function) ReduceBitwiseAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceBitwiseAnd", combineAnd, false, x, axes)
}

// ReduceBitwiseOr combines the elements over axes with |.
func (f *Function) ReduceBitwiseOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceBitwiseOr", combineOr, false, x, axes)
}

// ReduceBitwiseXor combines the elements over axes with ^.
func (f *Function) ReduceBitwiseXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceBitwiseXor", combineXor, false, x, axes)
}

// ReduceLogicalAnd reports whether all elements over axes are true.
func (f *Function) ReduceLogicalAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceLogicalAnd", combineAnd, true, x, axes)
}

// ReduceLogicalOr reports whether any element over axes is true.
func (f *Function) ReduceLogicalOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceLogicalOr", combineOr, true, x, axes)
}

// ReduceLogicalXor reports whether an odd number of elements over axes is true.
func (f *Function) ReduceLogicalXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addReduction("ReduceLogicalXor", combineXor, true, x, axes)
}

// ArgMinMax returns the index of the smallest or largest element along axis. Of equal elements it
// returns the first. If there is a NaN, it returns the first NaN.
func (f *Function) ArgMinMax(x compute.Value, axis int, outputDType dtypes.DType, isMin bool) (compute.Value, error) {
	return f.addOp("ArgMinMax", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		axis := normalizeAxis(axis, shape.Rank())
		if !outputDType.IsInt() || !ir.IsSupported(outputDType) {
			panic(fmt.Errorf("the index dtype must be an integer, got %s", outputDType))
		}
		closure := f.argCombiner(shape.DType, outputDType, isMin)
		worst := valueLowest
		if isMin {
			worst = valueHighest
		}
		c := f.opBuilder()
		positions := shape.Clone()
		positions.DType = outputDType
		counted := must(f.fn.Iota(positions, axis))
		starts := []*stablehlo.Value{c.specialConstant(outputDType, valueZero), c.specialConstant(shape.DType, worst)}
		return must(stablehlo.MultiReduce([]*stablehlo.Value{counted, in[0]}, starts, closure, axis))[0]
	})
}

// argCombiner returns a closure that selects one of two (index, value) pairs. It prefers NaN to
// other values, and the lower index of equal values, so the order of combination does not matter.
func (f *Function) argCombiner(value, index dtypes.DType, isMin bool) *stablehlo.Function {
	better := types.CompareGT
	if isMin {
		better = types.CompareLT
	}
	closure := f.fn.Closure()
	args := f.closureArgs(closure, index, value, index, value)
	li, lv, ri, rv := args[0], args[1], args[2], args[3]
	c := opBuilder{closure}
	left := c.compare(better, lv, rv)
	tie := c.compare(types.CompareEQ, lv, rv)
	if value.IsFloat() {
		lnan, rnan := must(isNaN(lv)), must(isNaN(rv))
		left = c.binary(stablehlo.Or, left, c.binary(stablehlo.And, lnan, must(stablehlo.Not(rnan))))
		tie = c.binary(stablehlo.Or, tie, c.binary(stablehlo.And, lnan, rnan))
	}
	lower := c.binary(stablehlo.Minimum, li, ri)
	outIndex := c.selectElements(left, li, c.selectElements(tie, lower, ri))
	outValue := c.selectElements(left, lv, rv)
	check(closure.Return(outIndex, outValue))
	return closure
}

// CumSum returns the running sum along axis. It starts at the end if Reverse is set, and excludes
// the element itself if Exclusive is set.
func (f *Function) CumSum(x compute.Value, axis int, options compute.CumSumOptions) (compute.Value, error) {
	return f.addOp("CumSum", valueList(x), f.accumulate(func(in []*stablehlo.Value) *stablehlo.Value {
		shape := in[0].Shape()
		axis := normalizeAxis(axis, shape.Rank())
		length := shape.Dimensions[axis]
		if shape.Size() == 0 {
			return in[0]
		}
		zero := f.opBuilder().specialConstant(shape.DType, valueZero)
		v := in[0]
		if options.Exclusive { // shift by one, so that each element gets the sum before it
			start, end := make([]int, shape.Rank()), make([]int, shape.Rank())
			start[axis], end[axis] = 1, -1
			if options.Reverse {
				start[axis], end[axis] = -1, 1
			}
			v = f.addPad(in[0], zero, start, end, make([]int, shape.Rank()))
		}
		ones, paddings := slices.Repeat([]int{1}, shape.Rank()), make([][2]int, shape.Rank())
		window := slices.Clone(ones)
		window[axis] = length
		paddings[axis] = [2]int{length - 1, 0}
		if options.Reverse {
			paddings[axis] = [2]int{0, length - 1}
		}
		return must(stablehlo.ReduceWindow(v, zero, f.combiner(combineSum, shape.DType), window, ones, ones, ones, paddings))
	}))
}
