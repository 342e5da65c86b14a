package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// sums are the dtypes in which half-precision numbers are summed.
type sums struct{ accumulate, partial dtypes.DType }

// SetSumDTypes sets the dtypes in which ops that are lowered from now on sum half-precision numbers.
// accumulate applies to reductions, windows, running sums, scatters and batch normalizations.
// partial applies to the parts of a dot product that are summed across devices. A dtype that is not
// wider than the operands changes nothing. The results have the dtypes that GoMLX expects. The
// default is the dtype of the operands. The dtypes apply to one graph. Do not call SetSumDTypes while
// another goroutine traces.
func (b *Backend) SetSumDTypes(accumulate, partial dtypes.DType) { b.sums = sums{accumulate, partial} }

// summed calls op, which combines elements of in[0]. If kind is a sum, op runs in the accumulation
// dtype: operands with the dtype of in[0] are converted to it, and the result is converted back.
func (f *Function) summed(kind combiner, in []*stablehlo.Value, op func(in []*stablehlo.Value) *stablehlo.Value) *stablehlo.Value {
	dtype, sum := in[0].Shape().DType, f.builder.backend.sums.accumulate
	if kind != combineSum || !widensHalf(dtype, sum) {
		return op(in)
	}
	c := f.chain()
	wide := make([]*stablehlo.Value, len(in))
	for i, v := range in {
		wide[i] = v
		if v.Shape().DType == dtype {
			wide[i] = c.convert(v, sum)
		}
	}
	return c.convert(op(wide), dtype)
}

// adding wraps op, which sums, so that it runs in the accumulation dtype.
func (f *Function) adding(op func(in []*stablehlo.Value) *stablehlo.Value) func(in []*stablehlo.Value) *stablehlo.Value {
	return func(in []*stablehlo.Value) *stablehlo.Value { return f.summed(combineSum, in, op) }
}

// sumsInFloat32 reports whether a batch normalization of the dtype accumulates in a wider dtype.
func (f *Function) sumsInFloat32(dtype dtypes.DType) bool {
	return widensHalf(dtype, f.builder.backend.sums.accumulate)
}

// partialWider reports whether partial sums of products of the dtype are exchanged between devices
// in a wider dtype.
func (f *Function) partialWider(dtype dtypes.DType) bool {
	return widensHalf(dtype, f.builder.backend.sums.partial)
}

func widensHalf(from, to dtypes.DType) bool {
	return from.IsHalfPrecision() && to != dtypes.InvalidDType && widens(from, to)
}
