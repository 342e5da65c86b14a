package lowering

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX takes the gradient of a half-precision product in float32: it converts the adjoint and the
// other operand, multiplies, transposes, and converts the result back. A compiler that has parts of
// that product on several devices then adds them up in float32, which sends twice the bytes. So
// such a product is written once more in half precision where its result is converted back, and the
// one in float32, which nothing reads, falls away. A float32 product that the step itself asks for
// stays one, also if its result is converted.

// product is a dot before its dtype is known.
type product struct {
	lhs, rhs                 *stablehlo.Value
	lhsContracting, lhsBatch []int
	rhsContracting, rhsBatch []int
}

// dot writes a product whose sums are of dtype sum.
func (f *Function) dot(p product, sum dtypes.DType) *stablehlo.Value {
	precision := f.builder.backend.opts.Precision.stableHLO()
	return must(stablehlo.DotGeneral(p.lhs, p.lhsContracting, p.lhsBatch, p.rhs, p.rhsContracting, p.rhsBatch).
		Precision(precision, precision).OutputDType(sum).Done())
}

// halves is what a function knows of its half-precision products.
type halves struct {
	// results are the dimensions of the products that a value is an operand of, by its name.
	results map[string][][]int
	// narrow has a float32 value of a gradient in half precision, by the value's name.
	narrow map[string]narrowing
}

type narrowing struct {
	dtype dtypes.DType
	write func() *stablehlo.Value
}

// multiplied notes a product of half precision whose sums are float32.
func (h *halves) multiplied(lhs, rhs, result *stablehlo.Value) {
	for _, operand := range []*stablehlo.Value{lhs, rhs} {
		h.results[operand.String()] = append(h.results[operand.String()], result.Shape().Dimensions)
	}
}

// gradient notes a float32 product v of f if it is one of the gradient of a half-precision product:
// that of an adjoint of its shape and of one of its operands, converted.
func (f *Function) gradient(p product, v *stablehlo.Value) {
	operand := f.converted(p.rhs)
	if operand == nil || !operand.Shape().DType.IsHalfPrecision() {
		return
	}
	if !slices.ContainsFunc(f.halves.results[operand.String()], func(dims []int) bool {
		return slices.Equal(dims, p.lhs.Shape().Dimensions)
	}) {
		return
	}
	d := operand.Shape().DType
	if adjoint := f.converted(p.lhs); adjoint != nil && adjoint.Shape().DType == d {
		p.lhs, p.rhs = adjoint, operand
	}
	f.halves.narrow[v.String()] = narrowing{d, func() *stablehlo.Value { return f.dot(p, d) }}
}

// converted returns what v is converted from in f, or nil.
func (f *Function) converted(v *stablehlo.Value) *stablehlo.Value {
	s := f.definition(v.String())
	if s == nil || s.Function != f.fn || s.OpType.ToStableHLO() != "stablehlo.convert" {
		return nil
	}
	return s.Inputs[0]
}

// transposed carries what is known of x over to its transpose.
func (h *halves) transposed(x, result *stablehlo.Value, permutation []int) {
	if n, ok := h.narrow[x.String()]; ok {
		h.narrow[result.String()] = narrowing{n.dtype, func() *stablehlo.Value { return must(stablehlo.Transpose(n.write(), permutation...)) }}
	}
}
