package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// GoMLX gives the gradient of a product's second operand as the transpose of a product. On one
// device compilers write that as the product of the same operands in the other order. A partitioner
// comes before and puts the sum over devices between the two; the transpose then stays, and walks
// through memory against its grain. So the product is written in the other order here.

// turned returns a function's statements, or those of a region, with each transpose of a product that
// nothing else reads as a product.
func turned(body []*ir.Statement) []*ir.Statement {
	defined, reads := map[*ir.Value]*ir.Statement{}, map[*ir.Value]int{}
	for _, s := range body {
		s.Reads(func(v *ir.Value) { reads[v]++ })
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
			if other := otherOrder(dot, s); other != nil {
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

// otherOrder is a transpose of a product as the product of its operands in the other order; nil if
// the transpose does not change just that.
func otherOrder(dot, transpose *ir.Statement) *ir.Statement {
	numbers, ok := dot.Attribute("dot_dimension_numbers").(ir.Fields)
	permutation, listed := transpose.Attribute("permutation").(ir.Ints)
	if !ok || !listed {
		return nil
	}
	batch := len(numbers.Dims("lhs_batching_dimensions"))
	left := dot.Operands[0].Type.Rank() - batch - len(numbers.Dims("lhs_contracting_dimensions"))
	for i, from := range permutation {
		right := len(permutation) - batch - left
		want := i // a dimension of the batch
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
	swapped := ir.Fields{Name: numbers.Name, Apart: numbers.Apart, List: slices.Clone(numbers.List)}
	for i, f := range swapped.List {
		swapped.List[i].Dims = numbers.Dims(sides[f.Name])
	}
	for _, a := range dot.Attributes {
		switch a.Key {
		case "dot_dimension_numbers", "precision_config": // package lowering writes one precision for both
		default:
			return nil
		}
	}
	other.Replace("dot_dimension_numbers", swapped)
	return &other
}

// sides are the fields of a product's numbers, by the field of the other operand.
var sides = map[string]string{
	"lhs_batching_dimensions": "rhs_batching_dimensions", "rhs_batching_dimensions": "lhs_batching_dimensions",
	"lhs_contracting_dimensions": "rhs_contracting_dimensions", "rhs_contracting_dimensions": "lhs_contracting_dimensions",
}
