package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// Complex joins real and imaginary parts; a scalar part is broadcast.
func (f *Function) Complex(re, im compute.Value) (compute.Value, error) {
	return f.binary("Complex", stablehlo.Complex, re, im)
}

// Conj returns the conjugate; a real number is its own.
func (f *Function) Conj(x compute.Value) (compute.Value, error) {
	return f.unary("Conj", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if !x.Shape().DType.IsComplex() {
			return x, nil
		}
		c := chain{fn: f.fn}
		re := c.unary(stablehlo.Real, x)
		im := c.unary(stablehlo.Negate, c.unary(stablehlo.Imag, x))
		return c.binary(stablehlo.Complex, re, im), c.err
	}, x)
}

// Real returns the real part; a real number is its own.
func (f *Function) Real(x compute.Value) (compute.Value, error) {
	return f.unary("Real", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if !x.Shape().DType.IsComplex() {
			return x, nil
		}
		return stablehlo.Real(x)
	}, x)
}

// Imag returns the imaginary part; that of a real number is zero.
func (f *Function) Imag(x compute.Value) (compute.Value, error) {
	return f.unary("Imag", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if x.Shape().DType.IsComplex() {
			return stablehlo.Imag(x)
		}
		c := chain{fn: f.fn}
		return c.zeros(x.Shape()), c.err
	}, x)
}
