package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// sums are the dtypes in which numbers of half precision are added up.
type sums struct{ accumulate, partial dtypes.DType }

// SumIn sets the dtypes in which the ops that are lowered from now on add up numbers of half
// precision. In accumulate they add elements: reductions, windows, running sums, scatters and the
// sums of batch normalisations. Of partial are the parts of a dot product that several devices add
// up. Dtypes that are no wider than the numbers leave an op as it is. The results have the dtypes
// that GoMLX expects. A backend that is told nothing adds up in the dtype of the numbers. SumIn is
// for one graph, and is not called while another goroutine traces.
func (b *Backend) SumIn(accumulate, partial dtypes.DType) { b.sums = sums{accumulate, partial} }

// summed calls an op that combines elements of in[0], in the dtype for that if it adds them up. All
// operands of the dtype of in[0] come in that dtype, and the result is converted back.
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

// adding is an op that adds up, in the dtype for that.
func (f *Function) adding(op func(in []*stablehlo.Value) *stablehlo.Value) func(in []*stablehlo.Value) *stablehlo.Value {
	return func(in []*stablehlo.Value) *stablehlo.Value { return f.summed(combineSum, in, op) }
}

// sumsInFloat32 reports whether a batch normalisation of a dtype adds up in float32.
func (f *Function) sumsInFloat32(dtype dtypes.DType) bool {
	return widensHalf(dtype, f.builder.backend.sums.accumulate)
}

// partialWider reports whether products of a dtype are sent between devices in a wider one.
func (f *Function) partialWider(dtype dtypes.DType) bool {
	return widensHalf(dtype, f.builder.backend.sums.partial)
}

func widensHalf(from, to dtypes.DType) bool {
	return from.IsHalfPrecision() && to != dtypes.InvalidDType && widens(from, to)
}
