package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// DotGeneral contracts axes of lhs and rhs and aligns batch axes. The result has the batch axes,
// then the remaining axes of lhs, then the remaining axes of rhs. Its dtype is config.OutputDType,
// or the dtype of lhs by default.
//
// Sums are accumulated in config.AccumulatorDType. If this dtype is wider than the operands' dtype
// and of the same kind, the dot returns it directly, at no cost on a TPU. Otherwise the operands
// are converted first.
//
// GoMLX requests float32 sums and half-precision results for half-precision operands. DotGeneral
// adds one dot with a half-precision result, which compilers accumulate in float32. If a sum is
// split over devices, the partial sums are exchanged in half precision, unless
// [Backend.SetSumDTypes] sets a wider dtype.
func (f *Function) DotGeneral(lhs compute.Value, lhsContracting, lhsBatch []int,
	rhs compute.Value, rhsContracting, rhsBatch []int, config compute.DotGeneralConfig) (compute.Value, error) {
	return f.addOp("DotGeneral", valueList(lhs, rhs), func(in []*stablehlo.Value) *stablehlo.Value {
		l, r := in[0], in[1]
		operand := l.Shape().DType
		output := config.OutputDType
		if output == dtypes.InvalidDType {
			output = operand
		}
		sum := config.AccumulatorDType
		if sum == dtypes.InvalidDType {
			sum = operand
			if isWider(operand, output) {
				sum = output
			}
		}
		requireSupported(output)
		requireSupported(sum)
		half := sum == dtypes.Float32 && operand.IsHalfPrecision() && !f.hasWiderPartialSums(operand)
		c := f.opBuilder()
		if sum != operand && f.builder.backend.opts.Target == TargetCPU {
			// The CPU compiler converts the operands of a mixed-precision dot into temporaries.
			// Without this barrier it converts all weights of a model before the first layer runs.
			both := must(stablehlo.OptimizationBarrier(l, r))
			l, r = both[0], both[1]
		}
		if sum != operand && !isWider(operand, sum) {
			l, r = c.convert(l, sum), c.convert(r, sum)
		}
		if half && output == operand {
			sum = output
		}
		p := dotProduct{l, r, lhsContracting, lhsBatch, rhsContracting, rhsBatch}
		v := f.addDot(p, sum)
		switch {
		case half:
			f.halfProducts.recordProduct(in[0], in[1], v)
		case operand == dtypes.Float32 && output == dtypes.Float32:
			f.recordGradient(p, v)
		}
		return c.convert(v, output)
	})
}

// isWider reports whether dtype to is of the same kind as dtype from and has more bits.
func isWider(from, to dtypes.DType) bool {
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
