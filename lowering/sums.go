package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// sumDTypes contains the dtypes in which half-precision numbers are summed.
type sumDTypes struct{ accumulate, partial dtypes.DType }

// SetSumDTypes sets the dtypes in which subsequently lowered ops sum half-precision numbers.
// accumulate applies to reductions, windows, running sums, scatters and batch normalizations.
// partial applies to the partial sums of a dot product that are summed across devices. Result
// dtypes do not change. By default, and if a dtype is not wider, ops use the dtype of the operands.
// The dtypes apply to one graph. SetSumDTypes must not be called while another goroutine traces.
func (b *Backend) SetSumDTypes(accumulate, partial dtypes.DType) {
	b.sums = sumDTypes{accumulate, partial}
}

// sumInAccumulator calls op, which combines elements of in[0]. If kind is a sum, it converts the
// operands with the dtype of in[0] to the accumulation dtype, and converts the result back.
func (f *Function) sumInAccumulator(kind combiner, in []*stablehlo.Value,
	op func(in []*stablehlo.Value) *stablehlo.Value) *stablehlo.Value {
	dtype, sum := in[0].Shape().DType, f.builder.backend.sums.accumulate
	if kind != combineSum || !isWiderThanHalf(dtype, sum) {
		return op(in)
	}
	c := f.opBuilder()
	wide := make([]*stablehlo.Value, len(in))
	for i, v := range in {
		wide[i] = v
		if v.Shape().DType == dtype {
			wide[i] = c.convert(v, sum)
		}
	}
	return c.convert(op(wide), dtype)
}

// accumulate wraps op, which computes a sum, in conversions to and from the accumulation dtype.
func (f *Function) accumulate(op func(in []*stablehlo.Value) *stablehlo.Value) func(
	in []*stablehlo.Value) *stablehlo.Value {
	return func(in []*stablehlo.Value) *stablehlo.Value { return f.sumInAccumulator(combineSum, in, op) }
}

func (f *Function) hasWiderAccumulator(dtype dtypes.DType) bool {
	return isWiderThanHalf(dtype, f.builder.backend.sums.accumulate)
}

// hasWiderPartialSums reports whether devices exchange partial sums of dot products of the dtype in
// a wider dtype.
func (f *Function) hasWiderPartialSums(dtype dtypes.DType) bool {
	return isWiderThanHalf(dtype, f.builder.backend.sums.partial)
}

func isWiderThanHalf(from, to dtypes.DType) bool {
	return from.IsHalfPrecision() && to != dtypes.InvalidDType && isWider(from, to)
}
