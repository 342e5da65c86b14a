package lowering

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// The CPU compiler has two implementations of the maximum of floats. One drops NaN. The other
// checks for NaN at each step and is not vectorized; it cost a tenth of a transformer's step, for
// the softmaxes. Therefore the maximum of float32 is computed as the maximum of integers in the
// same order, which the compiler vectorizes: the bits of positive numbers are in order already, the
// bits of negative numbers are inverted except for the sign, and NaN is mapped to the end of the
// order.

// The integers of infinity and NaN at both ends of the order.
const (
	orderedInf int32 = math.MaxInt32 &^ (1<<23 - 1) // -Inf is ^orderedInf
	orderedNaN int32 = orderedInf | 1<<22
)

// ordered reports whether the maximum or minimum of a dtype is computed with integers.
func (f *Function) ordered(kind combiner, d dtypes.DType) bool {
	return (kind == combineMax || kind == combineMin) && d == dtypes.Float32 && f.builder.backend.opts.Target == TargetCPU
}

// extreme returns the largest or smallest float32 of x over the axes, or NaN if an element is NaN.
func (f *Function) extreme(kind combiner, x *stablehlo.Value, over []int) *stablehlo.Value {
	c := f.chain()
	number := func(n int32) *stablehlo.Value { return c.number(dtypes.Int32, signed(n)) }
	// turned maps float bits to ordered integers, and back.
	turned := func(v *stablehlo.Value) *stablehlo.Value {
		sign := c.binary(stablehlo.ShiftRightArithmetic, v, number(31))
		return c.binary(stablehlo.Xor, v, c.binary(stablehlo.And, sign, number(math.MaxInt32)))
	}
	start, nan := ^orderedInf, orderedNaN
	if kind == combineMin {
		start, nan = orderedInf, ^orderedNaN
	}
	places := turned(c.bitcast(x, dtypes.Int32))
	isNaN := c.compare(types.CompareNE, x, x)
	places = c.selects(isNaN, c.broadcast(number(nan), xshapes.Make(dtypes.Int32, x.Shape().Dimensions...)), places)
	first := number(start)
	v := must(stablehlo.Reduce(places, first, f.combiner(kind, dtypes.Int32), over...))
	return c.bitcast(turned(v), dtypes.Float32)
}
