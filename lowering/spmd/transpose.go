package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// GoMLX computes the gradient of a product's second operand as the transpose of a product.
// Compilers rewrite this as the product of the swapped operands. With several devices, however, the
// partitioner runs earlier and inserts a sum over devices between product and transpose. The
// transpose then remains, with inefficient memory access. This file therefore swaps the operands.

// foldTransposes replaces each transpose of a product by the product of the swapped operands, if
// nothing else reads the product.
func foldTransposes(body []*ir.Statement) []*ir.Statement {
	defined, reads := map[*ir.Value]*ir.Statement{}, map[*ir.Value]int{}
	for _, s := range body {
		s.WalkOperands(func(v *ir.Value) { reads[v]++ })
		if s.Op == "stablehlo.dot_general" {
			defined[s.Results[0]] = s
		}
	}
	instead, gone := map[*ir.Statement]*ir.Statement{}, map[*ir.Statement]bool{}
	for _, s := range body {
		if s.Op != "stablehlo.transpose" || reads[s.Operands[0]] != 1 {
			continue
		}
		if dot := defined[s.Operands[0]]; dot != nil {
			if other := swapOperands(dot, s); other != nil {
				instead[s], gone[dot] = other, true
			}
		}
	}
	if len(instead) == 0 {
		return body
	}
	out := make([]*ir.Statement, 0, len(body))
	for _, s := range body {
		if other := instead[s]; other != nil {
			s = other
		}
		if !gone[s] {
			out = append(out, s)
		}
	}
	return out
}

// swapOperands returns the transpose of a product as the product of the swapped operands. It
// returns nil if the transpose permutes dimensions in another way.
func swapOperands(dot, transpose *ir.Statement) *ir.Statement {
	numbers, ok := dot.Attribute("dot_dimension_numbers").(ir.Struct)
	permutation, listed := transpose.Attribute("permutation").(ir.Ints)
	if !ok || !listed {
		return nil
	}
	batch := len(numbers.Dims("lhs_batching_dimensions"))
	left := dot.Operands[0].Type.Rank() - batch - len(numbers.Dims("lhs_contracting_dimensions"))
	for i, from := range permutation {
		right := len(permutation) - batch - left
		want := i // a batch dimension
		switch {
		case i >= batch+right:
			want = i - right
		case i >= batch:
			want = i + left
		}
		if from != want {
			return nil
		}
	}
	other := *dot
	other.Operands = []*ir.Value{dot.Operands[1], dot.Operands[0]}
	other.Results = transpose.Results
	swapped := ir.Struct{Name: numbers.Name, BracketOnNewLine: numbers.BracketOnNewLine,
		Fields: slices.Clone(numbers.Fields)}
	for i, f := range swapped.Fields {
		swapped.Fields[i].Dims = numbers.Dims(oppositeSide[f.Name])
	}
	for _, a := range dot.Attributes {
		switch a.Key {
		case "dot_dimension_numbers", "precision_config": // package lowering writes one precision for both operands
		default:
			return nil
		}
	}
	other.ReplaceAttribute("dot_dimension_numbers", swapped)
	return &other
}

var oppositeSide = map[string]string{
	"lhs_batching_dimensions": "rhs_batching_dimensions", "rhs_batching_dimensions": "lhs_batching_dimensions",
	"lhs_contracting_dimensions": "rhs_contracting_dimensions",
	"rhs_contracting_dimensions": "lhs_contracting_dimensions",
}
