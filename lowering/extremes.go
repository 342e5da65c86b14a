package lowering

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// The CPU compiler has two ways to take the maximum of floats: one that drops NaN, and one that
// looks for NaN at each step, which it does one element after another. The latter was a tenth of a
// transformer's step, for its softmaxes. So there the largest float32 is that of integers in the
// same order, of which the compiler takes many at a time: the bits of positive numbers are in order
// as they are, those of negative ones with all but the sign turned over, and NaN is put at the end.

// The integers of infinity and NaN at both ends of the order.
const (
	orderedInf int32 = math.MaxInt32 &^ (1<<23 - 1) // of -Inf it is ^orderedInf
	orderedNaN int32 = orderedInf | 1<<22
)

// ordered says that the maximum or minimum of a dtype is taken of integers.
func (f *Function) ordered(kind combiner, d dtypes.DType) bool {
	return (kind == combineMax || kind == combineMin) && d == dtypes.Float32 && f.builder.backend.opts.Target == TargetCPU
}

// extreme is the largest or lowest float32 of x over axes, NaN if one of them is.
func (f *Function) extreme(kind combiner, x *stablehlo.Value, over []int) *stablehlo.Value {
	c := f.chain()
	number := func(n int32) *stablehlo.Value { return c.number(dtypes.Int32, signed(n)) }
	// turned takes bits to their place in the order, and back.
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
