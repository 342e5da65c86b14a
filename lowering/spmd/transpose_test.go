package spmd

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// productOf returns a product and a transpose of it: lhs [b, m1, m2, k], rhs [b, k, n].
func productOf(permutation ...int) []*ir.Statement {
	f32 := func(dims ...int) ir.Type { return ir.TensorType(dtypes.Float32, dims...) }
	lhs, rhs := &ir.Value{Name: "l", Type: f32(2, 3, 4, 5)}, &ir.Value{Name: "r", Type: f32(2, 5, 6)}
	made := &ir.Value{Name: "0", Type: f32(2, 3, 4, 6)}
	dims := make([]int, 4)
	for i, p := range permutation {
		dims[i] = made.Type.Dims[p]
	}
	turned := &ir.Value{Name: "1", Type: f32(dims...)}
	return []*ir.Statement{
		{Op: "stablehlo.dot_general", Operands: []*ir.Value{lhs, rhs}, Results: []*ir.Value{made}, Attributes: []ir.Attribute{
			{Key: "dot_dimension_numbers", Value: ir.Struct{Name: "stablehlo.dot", Fields: []ir.Field{
				{Name: "lhs_batching_dimensions", Dims: []int{0}}, {Name: "rhs_batching_dimensions", Dims: []int{0}},
				{Name: "lhs_contracting_dimensions", Dims: []int{3}}, {Name: "rhs_contracting_dimensions", Dims: []int{1}},
			}}}}},
		{Op: "stablehlo.transpose", Operands: []*ir.Value{made}, Results: []*ir.Value{turned}, Attributes: []ir.Attribute{
			{Key: "permutation", Value: ir.Ints(permutation)}}},
		{Op: "stablehlo.return", Operands: []*ir.Value{turned}},
	}
}

// TestTurned checks that the pass rewrites only the permutation that a product in the other order
// computes.
func TestTurned(t *testing.T) {
	body := productOf(0, 3, 1, 2)
	before := *body[0]
	got := foldTransposes(body)
	if len(got) != 2 || got[0].Op != "stablehlo.dot_general" || got[1] != body[2] {
		t.Fatalf("%d statements, the first %s; want a product and its return", len(got), got[0].Op)
	}
	dot := got[0]
	if dot.Operands[0].Name != "r" || dot.Operands[1].Name != "l" || dot.Results[0].Name != "1" {
		t.Errorf("operands %s, %s and result %s; want r, l, 1", dot.Operands[0].Name, dot.Operands[1].Name,
			dot.Results[0].Name)
	}
	numbers := dot.Attribute("dot_dimension_numbers").(ir.Struct)
	if l, r := numbers.Dims("lhs_contracting_dimensions"), numbers.Dims("rhs_contracting_dimensions"); !slices.Equal(l,
		[]int{1}) || !slices.Equal(r, []int{3}) {
		t.Errorf("it contracts %v with %v, want [1] with [3]", l, r)
	}
	if body[0].Operands[0] != before.Operands[0] ||
		body[0].Attribute("dot_dimension_numbers").(ir.Struct).Dims("lhs_contracting_dimensions")[0] != 3 {
		t.Error("the product that was given has changed")
	}
	for _, other := range [][]int{{0, 1, 2, 3}, {0, 3, 2, 1}, {3, 0, 1, 2}, {0, 2, 3, 1}} {
		if got := foldTransposes(productOf(other...)); len(got) != 3 || got[1].Op != "stablehlo.transpose" {
			t.Errorf("permutation %v is taken for the other order", other)
		}
	}
	twice := productOf(0, 3, 1, 2)
	twice[2].Operands = append(twice[2].Operands, twice[0].Results[0])
	if got := foldTransposes(twice); len(got) != 3 {
		t.Error("a product that is read otherwise too is written twice")
	}
	asked := productOf(0, 3, 1, 2)
	asked[0].Attributes = append(asked[0].Attributes, ir.Attribute{Key: "algorithm", Value: ir.Raw("#x")})
	if got := foldTransposes(asked); len(got) != 3 {
		t.Error("a product with an attribute of each side is turned")
	}
}
