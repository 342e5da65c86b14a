package lowering

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX computes the gradient of a half-precision product in float32: it converts the adjoint and
// the other operand, multiplies, transposes, and converts the result back. If several devices have
// parts of this product, the compiler sums the parts in float32, which sends twice the bytes.
// Therefore the product is written again in half precision at the conversion of its result. The
// float32 product is then unused and is removed. A float32 product of the user's code stays in
// float32, also if its result is converted.

// product is a dot without a result dtype.
type product struct {
	lhs, rhs                 *stablehlo.Value
	lhsContracting, lhsBatch []int
	rhsContracting, rhsBatch []int
}

// dot writes a product with sums in dtype sum.
func (f *Function) dot(p product, sum dtypes.DType) *stablehlo.Value {
	precision := f.builder.backend.opts.Precision.stableHLO()
	return must(stablehlo.DotGeneral(p.lhs, p.lhsContracting, p.lhsBatch, p.rhs, p.rhsContracting, p.rhsBatch).
		Precision(precision, precision).OutputDType(sum).Done())
}

// halves tracks the half-precision products of a function.
type halves struct {
	// results maps the name of a value to the dimensions of the products that have this value as an
	// operand.
	results map[string][][]int
	// narrow maps the name of a float32 value of a gradient to its half-precision version.
	narrow map[string]narrowing
}

type narrowing struct {
	dtype dtypes.DType
	write func() *stablehlo.Value
}

// multiplied records a half-precision product with float32 sums.
func (h *halves) multiplied(lhs, rhs, result *stablehlo.Value) {
	for _, operand := range []*stablehlo.Value{lhs, rhs} {
		h.results[operand.String()] = append(h.results[operand.String()], result.Shape().Dimensions)
	}
}

// gradient records the float32 product v of f if it is a gradient of a half-precision product: a
// product of a converted adjoint with the shape of the product, and one of the converted operands
// of the product.
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

// converted returns the value that v is converted from in f, or nil.
func (f *Function) converted(v *stablehlo.Value) *stablehlo.Value {
	s := f.definition(v.String())
	if s == nil || s.Function != f.fn || s.OpType.ToStableHLO() != "stablehlo.convert" {
		return nil
	}
	return s.Inputs[0]
}

// transposed records for the transpose of x the facts known about x.
func (h *halves) transposed(x, result *stablehlo.Value, permutation []int) {
	if n, ok := h.narrow[x.String()]; ok {
		h.narrow[result.String()] = narrowing{n.dtype, func() *stablehlo.Value { return must(stablehlo.Transpose(n.write(), permutation...)) }}
	}
}
