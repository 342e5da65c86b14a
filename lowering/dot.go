package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// DotGeneral contracts axes of lhs and rhs and aligns batch axes. The result has the batch axes,
// then the remaining axes of lhs, then the remaining axes of rhs. Its dtype is config.OutputDType,
// by default the dtype of lhs.
//
// Sums are accumulated in config.AccumulatorDType. If this is a wider type of the same kind as the
// operands' dtype, the dot itself returns it, which costs nothing on a TPU. Otherwise the operands
// are converted first.
//
// GoMLX requests float32 sums and a half-precision result for half-precision operands. This is
// lowered to one dot with a half-precision result: compilers accumulate such a dot in float32. If
// several devices compute parts of the sum, they exchange the parts in half precision, which is
// half the bytes, unless [Backend.SetSumDTypes] requests a wider dtype.
func (f *Function) DotGeneral(lhs compute.Value, lhsContracting, lhsBatch []int,
	rhs compute.Value, rhsContracting, rhsBatch []int, config compute.DotGeneralConfig) (compute.Value, error) {
	return f.op("DotGeneral", with(lhs, rhs), func(in []*stablehlo.Value) *stablehlo.Value {
		l, r := in[0], in[1]
		operand := l.Shape().DType
		output := config.OutputDType
		if output == dtypes.InvalidDType {
			output = operand
		}
		sum := config.AccumulatorDType
		if sum == dtypes.InvalidDType {
			sum = operand
			if widens(operand, output) {
				sum = output
			}
		}
		wantRepresentable(output)
		wantRepresentable(sum)
		half := sum == dtypes.Float32 && operand.IsHalfPrecision() && !f.partialWider(operand)
		c := f.chain()
		if sum != operand && f.builder.backend.opts.Target == TargetCPU {
			// The CPU compiler converts the operands of a mixed-precision dot into temporaries.
			// Without this barrier it converts all weights of a model before the first layer runs.
			both := must(stablehlo.OptimizationBarrier(l, r))
			l, r = both[0], both[1]
		}
		if sum != operand && !widens(operand, sum) {
			l, r = c.convert(l, sum), c.convert(r, sum)
		}
		if half && output == operand {
			sum = output
		}
		p := product{l, r, lhsContracting, lhsBatch, rhsContracting, rhsBatch}
		v := f.dot(p, sum)
		switch {
		case half:
			f.halves.multiplied(in[0], in[1], v)
		case operand == dtypes.Float32 && output == dtypes.Float32:
			f.gradient(p, v)
		}
		return c.convert(v, output)
	})
}

// widens reports whether to has the same kind as from and more bits, so that it contains every
// value of from.
func widens(from, to dtypes.DType) bool {
	switch {
	case from.IsFloat():
		return to.IsFloat() && to.Bits() > from.Bits()
	case from.IsComplex():
		return to.IsComplex() && to.Bits() > from.Bits()
	case from.IsInt():
		return to.IsInt() && to.IsUnsigned() == from.IsUnsigned() && to.Bits() > from.Bits()
	}
	return false
}
