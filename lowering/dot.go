package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// DotGeneral contracts axes of lhs and rhs and aligns batch axes. The result has the batch axes,
// then the remaining ones of lhs, then those of rhs; its dtype is config.OutputDType, that of lhs
// by default.
//
// Sums are kept in config.AccumulatorDType. Where that is a wider type of the same kind as the
// operands', the dot itself yields it, which a TPU does at no cost; otherwise the operands are
// converted first.
//
// Half-precision operands with sums in float32 and a result of their own dtype, as GoMLX asks for,
// are one dot that yields half precision: compilers keep the sums of such a dot in float32, and
// where its parts lie on several devices they are sent in half precision, which is half the bytes,
// unless [Backend.SumIn] asks for more.
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
			// The CPU compiler widens the operands of a mixed dot into temporaries. Nothing else
			// keeps it from doing so for all weights of a model before the first layer runs.
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

// widens reports whether to holds every value of from, being of the same kind with more bits.
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
