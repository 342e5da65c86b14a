package lowering

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// The CPU compiler has two implementations of the maximum of floats. One drops NaN. The other
// checks for NaN at each step and is not vectorized, which cost a tenth of a transformer's step.
// This file therefore maps float32 to int32 with the same order, for which the compiler vectorizes
// the maximum. Bits of positive numbers are already in order. Bits of negative numbers are inverted
// except for the sign. NaN is mapped to the end of the order.

// The int32 values of +Inf and NaN in that order; ^orderedInf is -Inf.
const (
	orderedInf int32 = math.MaxInt32 &^ (1<<23 - 1) // -Inf is ^orderedInf
	orderedNaN int32 = orderedInf | 1<<22
)

// reducesAsIntegers reports whether the maximum or minimum of floats of the dtype must be computed
// by reduceAsIntegers.
func (f *Function) reducesAsIntegers(kind combiner, d dtypes.DType) bool {
	return (kind == combineMax || kind == combineMin) && d == dtypes.Float32 && f.builder.backend.opts.Target == TargetCPU
}

// reduceAsIntegers returns the maximum or minimum of float32 elements over the axes, computed with
// integers. It is NaN if an element is NaN.
func (f *Function) reduceAsIntegers(kind combiner, x *stablehlo.Value, over []int) *stablehlo.Value {
	c := f.opBuilder()
	number := func(n int32) *stablehlo.Value { return c.constant(dtypes.Int32, signedNumber(n)) }
	// mapBits maps the bits of floats to ordered integers and back.
	mapBits := func(v *stablehlo.Value) *stablehlo.Value {
		sign := c.binary(stablehlo.ShiftRightArithmetic, v, number(31))
		return c.binary(stablehlo.Xor, v, c.binary(stablehlo.And, sign, number(math.MaxInt32)))
	}
	start, nan := ^orderedInf, orderedNaN
	if kind == combineMin {
		start, nan = orderedInf, ^orderedNaN
	}
	places := mapBits(c.bitcast(x, dtypes.Int32))
	isNaN := c.compare(types.CompareNE, x, x)
	places = c.selectElements(isNaN, c.broadcast(number(nan), xshapes.Make(dtypes.Int32, x.Shape().Dimensions...)), places)
	first := number(start)
	v := must(stablehlo.Reduce(places, first, f.combiner(kind, dtypes.Int32), over...))
	return c.bitcast(mapBits(v), dtypes.Float32)
}
