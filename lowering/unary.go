package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// unaryOp adds an elementwise op with one operand.
type unaryOp = func(x *stablehlo.Value) (*stablehlo.Value, error)

func (f *Function) addUnary(name string, op unaryOp, x compute.Value) (compute.Value, error) {
	return f.addOp(name, valueList(x), func(in []*stablehlo.Value) *stablehlo.Value { return must(op(in[0])) })
}

// BitCount returns the number of set bits of each element.
func (f *Function) BitCount(x compute.Value) (compute.Value, error) {
	return f.addUnary("BitCount", stablehlo.Popcnt, x)
}

// BitwiseNot inverts every bit.
func (f *Function) BitwiseNot(x compute.Value) (compute.Value, error) {
	return f.addUnary("BitwiseNot", stablehlo.Not, x)
}

// Ceil rounds up.
func (f *Function) Ceil(x compute.Value) (compute.Value, error) {
	return f.addUnary("Ceil", stablehlo.Ceil, x)
}

// Clz returns the number of leading zero bits of each element.
func (f *Function) Clz(x compute.Value) (compute.Value, error) {
	return f.addUnary("Clz", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		d := x.Shape().DType
		unsigned, ok := unsignedOf[d]
		if !ok {
			return stablehlo.CountLeadingZeros(x)
		}
		// XLA counts in 64 bits when it folds negative constants.
		c := f.opBuilder()
		return c.convert(must(stablehlo.CountLeadingZeros(c.bitcast(x, unsigned))), d), nil
	}, x)
}

// unsignedOf maps a signed type to the unsigned type of the same size.
var unsignedOf = map[dtypes.DType]dtypes.DType{
	dtypes.Int8: dtypes.Uint8, dtypes.Int16: dtypes.Uint16, dtypes.Int32: dtypes.Uint32, dtypes.Int64: dtypes.Uint64,
}

// Cos returns the cosine.
func (f *Function) Cos(x compute.Value) (compute.Value, error) {
	return f.addUnary("Cos", stablehlo.Cosine, x)
}

// Erf returns the error function.
func (f *Function) Erf(x compute.Value) (compute.Value, error) {
	return f.addUnary("Erf", stablehlo.Erf, x)
}

// Exp returns e to the power x.
func (f *Function) Exp(x compute.Value) (compute.Value, error) {
	return f.addUnary("Exp", stablehlo.Exponential, x)
}

// Expm1 returns exp(x)-1, which is accurate near zero.
func (f *Function) Expm1(x compute.Value) (compute.Value, error) {
	return f.addUnary("Expm1", stablehlo.ExponentialMinusOne, x)
}

// Floor rounds down.
func (f *Function) Floor(x compute.Value) (compute.Value, error) {
	return f.addUnary("Floor", stablehlo.Floor, x)
}

// IsFinite reports for each element whether it is neither infinite nor NaN.
func (f *Function) IsFinite(x compute.Value) (compute.Value, error) {
	return f.addUnary("IsFinite", stablehlo.IsFinite, x)
}

// IsNaN reports for each element whether it is NaN.
func (f *Function) IsNaN(x compute.Value) (compute.Value, error) {
	return f.addUnary("IsNaN", isNaN, x)
}

// isNaN compares x with itself, because only NaN differs from itself.
func isNaN(x *stablehlo.Value) (*stablehlo.Value, error) {
	return stablehlo.Compare(x, x, types.CompareNE, comparisonType(x.Shape().DType))
}

// Log returns the natural logarithm.
func (f *Function) Log(x compute.Value) (compute.Value, error) {
	return f.addUnary("Log", stablehlo.Log, x)
}

// Log1p returns log(1+x), which is accurate near zero.
func (f *Function) Log1p(x compute.Value) (compute.Value, error) {
	return f.addUnary("Log1p", stablehlo.LogPlusOne, x)
}

// LogicalNot negates booleans.
func (f *Function) LogicalNot(x compute.Value) (compute.Value, error) {
	return f.addUnary("LogicalNot", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		requireBool(x)
		return stablehlo.Not(x)
	}, x)
}

// Logistic returns 1/(1+exp(-x)).
func (f *Function) Logistic(x compute.Value) (compute.Value, error) {
	return f.addUnary("Logistic", stablehlo.Logistic, x)
}

// Neg returns -x.
func (f *Function) Neg(x compute.Value) (compute.Value, error) {
	return f.addUnary("Neg", stablehlo.Negate, x)
}

// Round rounds to the nearest integer, and halves to the nearest even integer.
func (f *Function) Round(x compute.Value) (compute.Value, error) {
	return f.addUnary("Round", stablehlo.RoundNearestEven, x)
}

// Rsqrt returns 1/sqrt(x).
func (f *Function) Rsqrt(x compute.Value) (compute.Value, error) {
	return f.addUnary("Rsqrt", stablehlo.Rsqrt, x)
}

// Sin returns the sine.
func (f *Function) Sin(x compute.Value) (compute.Value, error) {
	return f.addUnary("Sin", stablehlo.Sine, x)
}

// Sqrt returns the square root.
func (f *Function) Sqrt(x compute.Value) (compute.Value, error) {
	return f.addUnary("Sqrt", stablehlo.Sqrt, x)
}

// Tanh returns the hyperbolic tangent.
func (f *Function) Tanh(x compute.Value) (compute.Value, error) {
	return f.addUnary("Tanh", stablehlo.Tanh, x)
}

// Sign returns -1, 0 or 1, or NaN for NaN. For unsigned dtypes, which StableHLO's sign does not
// support, it returns min(x, 1).
func (f *Function) Sign(x compute.Value) (compute.Value, error) {
	return f.addUnary("Sign", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		d := x.Shape().DType
		if !d.IsUnsigned() {
			return stablehlo.Sign(x)
		}
		c := f.opBuilder()
		return c.binary(stablehlo.Minimum, x, c.specialConstant(d, valueOne)), nil
	}, x)
}

// Abs returns the absolute value. For complex numbers it returns the magnitude, a real number.
func (f *Function) Abs(x compute.Value) (compute.Value, error) {
	return f.addUnary("Abs", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		switch d := x.Shape().DType; {
		case d.IsUnsigned():
			return x, nil
		case !d.IsComplex():
			return stablehlo.Abs(x)
		}
		// hypot, scaled by the larger part so that the squares neither overflow nor underflow.
		c := f.opBuilder()
		re := must(stablehlo.Abs(must(stablehlo.Real(x))))
		im := must(stablehlo.Abs(must(stablehlo.Imag(x))))
		large := c.binary(stablehlo.Maximum, re, im)
		small := c.binary(stablehlo.Minimum, re, im)
		d := large.Shape().DType
		zero := c.zeros(large.Shape())
		infinity := c.broadcast(c.specialConstant(d, valueHighest), large.Shape())
		ratio := c.binary(stablehlo.Divide, small, large)
		root := must(stablehlo.Sqrt(c.binary(stablehlo.Add, c.specialConstant(d, valueOne),
			c.binary(stablehlo.Multiply, ratio, ratio))))
		scaled := c.binary(stablehlo.Multiply, large, root)
		scaled = c.selectElements(c.compare(types.CompareEQ, large, zero), zero, scaled)
		scaled = c.selectElements(c.compare(types.CompareEQ, large, infinity), infinity, scaled)
		return scaled, nil
	}, x)
}

// ConvertDType converts each element to dtype. A complex number becomes its real part, unless dtype
// is complex or Bool. Converting to Bool is true for any number other than 0.
func (f *Function) ConvertDType(x compute.Value, dtype dtypes.DType) (compute.Value, error) {
	return f.addUnary("ConvertDType", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		requireSupported(dtype)
		if n, ok := f.halfProducts.halfVersions[x.String()]; ok && n.dtype == dtype {
			return n.build(), nil
		}
		if !x.Shape().DType.IsComplex() || dtype.IsComplex() {
			return stablehlo.Convert(x, dtype)
		}
		// Compilers crash on a direct conversion.
		c := f.opBuilder()
		if dtype == dtypes.Bool {
			return c.nonzero(x), nil
		}
		return c.convert(must(stablehlo.Real(x)), dtype), nil
	}, x)
}
