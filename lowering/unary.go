package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// unaryOp writes an element-wise op of one operand.
type unaryOp = func(x *stablehlo.Value) (*stablehlo.Value, error)

// unary adds an elementwise op that StableHLO has.
func (f *Function) unary(name string, op unaryOp, x compute.Value) (compute.Value, error) {
	return f.op(name, with(x), func(in []*stablehlo.Value) *stablehlo.Value { return must(op(in[0])) })
}

// BitCount returns the number of set bits of each element.
func (f *Function) BitCount(x compute.Value) (compute.Value, error) {
	return f.unary("BitCount", stablehlo.Popcnt, x)
}

// BitwiseNot flips every bit.
func (f *Function) BitwiseNot(x compute.Value) (compute.Value, error) {
	return f.unary("BitwiseNot", stablehlo.Not, x)
}

// Ceil rounds up.
func (f *Function) Ceil(x compute.Value) (compute.Value, error) {
	return f.unary("Ceil", stablehlo.Ceil, x)
}

// Clz returns the number of leading zero bits of each element.
func (f *Function) Clz(x compute.Value) (compute.Value, error) {
	return f.unary("Clz", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		d := x.Shape().DType
		unsigned, ok := unsignedOf[d]
		if !ok {
			return stablehlo.CountLeadingZeros(x)
		}
		// XLA counts in 64 bits when it folds negative constants.
		c := f.chain()
		return c.convert(must(stablehlo.CountLeadingZeros(c.bitcast(x, unsigned))), d), nil
	}, x)
}

// unsignedOf maps a signed type to the unsigned type of the same size.
var unsignedOf = map[dtypes.DType]dtypes.DType{
	dtypes.Int8: dtypes.Uint8, dtypes.Int16: dtypes.Uint16, dtypes.Int32: dtypes.Uint32, dtypes.Int64: dtypes.Uint64,
}

// Cos returns the cosine.
func (f *Function) Cos(x compute.Value) (compute.Value, error) {
	return f.unary("Cos", stablehlo.Cosine, x)
}

// Erf returns the error function.
func (f *Function) Erf(x compute.Value) (compute.Value, error) {
	return f.unary("Erf", stablehlo.Erf, x)
}

// Exp returns e to the power x.
func (f *Function) Exp(x compute.Value) (compute.Value, error) {
	return f.unary("Exp", stablehlo.Exponential, x)
}

// Expm1 returns exp(x)-1, exact near zero.
func (f *Function) Expm1(x compute.Value) (compute.Value, error) {
	return f.unary("Expm1", stablehlo.ExponentialMinusOne, x)
}

// Floor rounds down.
func (f *Function) Floor(x compute.Value) (compute.Value, error) {
	return f.unary("Floor", stablehlo.Floor, x)
}

// IsFinite reports for each element whether it is neither infinite nor NaN.
func (f *Function) IsFinite(x compute.Value) (compute.Value, error) {
	return f.unary("IsFinite", stablehlo.IsFinite, x)
}

// IsNaN reports for each element whether it is NaN.
func (f *Function) IsNaN(x compute.Value) (compute.Value, error) {
	return f.unary("IsNaN", isNaN, x)
}

// isNaN compares x with itself: only NaN differs from itself.
func isNaN(x *stablehlo.Value) (*stablehlo.Value, error) {
	return stablehlo.Compare(x, x, types.CompareNE, comparisonType(x.Shape().DType))
}

// Log returns the natural logarithm.
func (f *Function) Log(x compute.Value) (compute.Value, error) {
	return f.unary("Log", stablehlo.Log, x)
}

// Log1p returns log(1+x), exact near zero.
func (f *Function) Log1p(x compute.Value) (compute.Value, error) {
	return f.unary("Log1p", stablehlo.LogPlusOne, x)
}

// LogicalNot negates booleans.
func (f *Function) LogicalNot(x compute.Value) (compute.Value, error) {
	return f.unary("LogicalNot", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		wantBool(x)
		return stablehlo.Not(x)
	}, x)
}

// Logistic returns 1/(1+exp(-x)).
func (f *Function) Logistic(x compute.Value) (compute.Value, error) {
	return f.unary("Logistic", stablehlo.Logistic, x)
}

// Neg returns -x.
func (f *Function) Neg(x compute.Value) (compute.Value, error) {
	return f.unary("Neg", stablehlo.Negate, x)
}

// Round rounds to the nearest integer, and halves to the even integer.
func (f *Function) Round(x compute.Value) (compute.Value, error) {
	return f.unary("Round", stablehlo.RoundNearestEven, x)
}

// Rsqrt returns 1/sqrt(x).
func (f *Function) Rsqrt(x compute.Value) (compute.Value, error) {
	return f.unary("Rsqrt", stablehlo.Rsqrt, x)
}

// Sin returns the sine.
func (f *Function) Sin(x compute.Value) (compute.Value, error) {
	return f.unary("Sin", stablehlo.Sine, x)
}

// Sqrt returns the square root.
func (f *Function) Sqrt(x compute.Value) (compute.Value, error) {
	return f.unary("Sqrt", stablehlo.Sqrt, x)
}

// Tanh returns the hyperbolic tangent.
func (f *Function) Tanh(x compute.Value) (compute.Value, error) {
	return f.unary("Tanh", stablehlo.Tanh, x)
}

// Sign returns -1, 0 or 1, and NaN for NaN. For unsigned types, which StableHLO's sign does not
// support, it is min(x, 1).
func (f *Function) Sign(x compute.Value) (compute.Value, error) {
	return f.unary("Sign", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		d := x.Shape().DType
		if !d.IsUnsigned() {
			return stablehlo.Sign(x)
		}
		c := f.chain()
		return c.binary(stablehlo.Minimum, x, c.scalar(d, valueOne)), nil
	}, x)
}

// Abs returns the absolute value. The result for a complex number is its magnitude, a real number.
func (f *Function) Abs(x compute.Value) (compute.Value, error) {
	return f.unary("Abs", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		switch d := x.Shape().DType; {
		case d.IsUnsigned():
			return x, nil
		case !d.IsComplex():
			return stablehlo.Abs(x)
		}
		// hypot, scaled by the larger part so that the squares neither overflow nor underflow.
		c := f.chain()
		re := must(stablehlo.Abs(must(stablehlo.Real(x))))
		im := must(stablehlo.Abs(must(stablehlo.Imag(x))))
		large := c.binary(stablehlo.Maximum, re, im)
		small := c.binary(stablehlo.Minimum, re, im)
		d := large.Shape().DType
		zero := c.zeros(large.Shape())
		infinity := c.broadcast(c.scalar(d, valueHighest), large.Shape())
		ratio := c.binary(stablehlo.Divide, small, large)
		root := must(stablehlo.Sqrt(c.binary(stablehlo.Add, c.scalar(d, valueOne),
			c.binary(stablehlo.Multiply, ratio, ratio))))
		scaled := c.binary(stablehlo.Multiply, large, root)
		scaled = c.selects(c.compare(types.CompareEQ, large, zero), zero, scaled)
		scaled = c.selects(c.compare(types.CompareEQ, large, infinity), infinity, scaled)
		return scaled, nil
	}, x)
}

// ConvertDType converts each element to dtype. A complex number is converted to its real part,
// unless dtype is complex or Bool. A conversion to Bool is true for numbers other than 0, including
// complex numbers with only an imaginary part.
func (f *Function) ConvertDType(x compute.Value, dtype dtypes.DType) (compute.Value, error) {
	return f.unary("ConvertDType", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		wantRepresentable(dtype)
		if n, ok := f.halves.narrow[x.String()]; ok && n.dtype == dtype {
			return n.write(), nil
		}
		if !x.Shape().DType.IsComplex() || dtype.IsComplex() {
			return stablehlo.Convert(x, dtype)
		}
		// Compilers crash on a direct conversion.
		c := f.chain()
		if dtype == dtypes.Bool {
			return c.nonzero(x), nil
		}
		return c.convert(must(stablehlo.Real(x)), dtype), nil
	}, x)
}
