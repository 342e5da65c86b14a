package lowering

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX computes the gradient of a half-precision dot product in float32: it converts the adjoint
// and an operand, multiplies, transposes, and converts the result back. If the product is split
// over devices, the compiler sums it in float32, which sends twice the bytes. This file adds the
// product again in half precision where its result is converted. The unused float32 product is
// removed later. Other float32 products stay in float32.

// dotProduct contains the operands and dimension numbers of a dot_general.
type dotProduct struct {
	lhs, rhs                 *stablehlo.Value
	lhsContracting, lhsBatch []int
	rhsContracting, rhsBatch []int
}

func (f *Function) addDot(p dotProduct, sum dtypes.DType) *stablehlo.Value {
	precision := f.builder.backend.opts.Precision.stableHLO()
	return must(stablehlo.DotGeneral(p.lhs, p.lhsContracting, p.lhsBatch, p.rhs, p.rhsContracting, p.rhsBatch).
		Precision(precision, precision).OutputDType(sum).Done())
}

// halfProducts records the half-precision dot products of a function, and the float32 gradients
// that can be computed in half precision instead.
type halfProducts struct {
	// resultDims maps the name of an operand to the dimensions of the products that it is
	// multiplied in.
	resultDims map[string][][]int
	// halfVersions maps the name of a float32 gradient to the builder of its half-precision
	// version.
	halfVersions map[string]halfVersion
}

type halfVersion struct {
	dtype dtypes.DType
	build func() *stablehlo.Value
}

// recordProduct records a half-precision dot product that is accumulated in float32, so that
// recordGradient can recognize the gradients of the product.
func (h *halfProducts) recordProduct(lhs, rhs, result *stablehlo.Value) {
	for _, operand := range []*stablehlo.Value{lhs, rhs} {
		h.resultDims[operand.String()] = append(h.resultDims[operand.String()], result.Shape().Dimensions)
	}
}

// recordGradient checks whether the float32 dot product v is the gradient of a half-precision
// product. If it is, recordGradient records how to compute v in half precision. In such a gradient
// the left operand has the shape of the product, and the right operand is converted from an operand
// of the product.
func (f *Function) recordGradient(p dotProduct, v *stablehlo.Value) {
	operand := f.conversionOperand(p.rhs)
	if operand == nil || !operand.Shape().DType.IsHalfPrecision() {
		return
	}
	if !slices.ContainsFunc(f.halfProducts.resultDims[operand.String()], func(dims []int) bool {
		return slices.Equal(dims, p.lhs.Shape().Dimensions)
	}) {
		return
	}
	d := operand.Shape().DType
	if adjoint := f.conversionOperand(p.lhs); adjoint != nil && adjoint.Shape().DType == d {
		p.lhs, p.rhs = adjoint, operand
	}
	f.halfProducts.halfVersions[v.String()] = halfVersion{d, func() *stablehlo.Value { return f.addDot(p, d) }}
}

// conversionOperand returns the operand of the convert op that computes v, or nil if another op
// computes v.
func (f *Function) conversionOperand(v *stablehlo.Value) *stablehlo.Value {
	s := f.definition(v.String())
	if s == nil || s.Function != f.fn || s.OpType.ToStableHLO() != "stablehlo.convert" {
		return nil
	}
	return s.Inputs[0]
}

// recordTranspose records how to compute result, the transpose of the gradient x, in half
// precision. It does nothing if no half-precision version of x is recorded.
func (h *halfProducts) recordTranspose(x, result *stablehlo.Value, permutation []int) {
	if n, ok := h.halfVersions[x.String()]; ok {
		h.halfVersions[result.String()] = halfVersion{n.dtype,
			func() *stablehlo.Value { return must(stablehlo.Transpose(n.build(), permutation...)) }}
	}
}
