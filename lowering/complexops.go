package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// Complex returns complex numbers with the given real and imaginary parts. A scalar part is
// broadcast.
func (f *Function) Complex(re, im compute.Value) (compute.Value, error) {
	return f.addBinary("Complex", stablehlo.Complex, re, im)
}

// Conj returns the complex conjugate. A real operand is returned unchanged.
func (f *Function) Conj(x compute.Value) (compute.Value, error) {
	return f.addUnary("Conj", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if !x.Shape().DType.IsComplex() {
			return x, nil
		}
		re := must(stablehlo.Real(x))
		im := must(stablehlo.Negate(must(stablehlo.Imag(x))))
		return stablehlo.Complex(re, im)
	}, x)
}

// Real returns the real part. A real operand is returned unchanged.
func (f *Function) Real(x compute.Value) (compute.Value, error) {
	return f.addUnary("Real", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if !x.Shape().DType.IsComplex() {
			return x, nil
		}
		return stablehlo.Real(x)
	}, x)
}

// Imag returns the imaginary part, which is zero for a real operand.
func (f *Function) Imag(x compute.Value) (compute.Value, error) {
	return f.addUnary("Imag", func(x *stablehlo.Value) (*stablehlo.Value, error) {
		if x.Shape().DType.IsComplex() {
			return stablehlo.Imag(x)
		}
		return f.opBuilder().zeros(x.Shape()), nil
	}, x)
}
