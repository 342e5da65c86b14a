package ragged

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Builders of the ops that are added to a program. The result types follow from the operand types.

// do adds an op with attributes sorted by name.
func (r *rewriter) do(op string, result ir.Type, in []*ir.Value, attributes ...ir.Attribute) *ir.Value {
	v := r.main.Fresh(result)
	s := &ir.Statement{Op: "stablehlo." + op, Operands: in, Results: []*ir.Value{v}, Attributes: attributes}
	*r.to = append(*r.to, s)
	return v
}

// binary adds an op with two operands of the same type.
func (r *rewriter) binary(op string, a, b *ir.Value) *ir.Value {
	return r.do(op, a.Type, []*ir.Value{a, b})
}

func (r *rewriter) convert(v *ir.Value, dtype dtypes.DType) *ir.Value {
	return r.do("convert", ir.Tensor(dtype, v.Type.Dims...), []*ir.Value{v})
}

func (r *rewriter) compare(direction string, a, b *ir.Value) *ir.Value {
	return r.do("compare", ir.Tensor(dtypes.Bool, a.Type.Dims...), []*ir.Value{a, b},
		ir.Attribute{Key: "compare_type", Value: ir.Enum{Name: "comparison_type", Word: "SIGNED"}},
		ir.Attribute{Key: ir.Direction, Value: ir.Enum{Name: ir.Direction, Word: direction}})
}

func (r *rewriter) choose(pred, onTrue, onFalse *ir.Value) *ir.Value {
	return r.do("select", onTrue.Type, []*ir.Value{pred, onTrue, onFalse})
}

// iota returns indices along an axis of a shape.
func (r *rewriter) iota(axis int, dims ...int) *ir.Value {
	return r.do("iota", ir.Tensor(dtypes.Int32, dims...), nil, ir.Attribute{Key: ir.Dimension, Value: ir.Int(axis)})
}

// spread broadcasts v to dims. Dimension i of v becomes dimension at[i]; a scalar has no
// dimensions.
func (r *rewriter) spread(v *ir.Value, dims []int, at ...int) *ir.Value {
	return r.do("broadcast_in_dim", v.Type.With(dims...), []*ir.Value{v}, ir.Attribute{Key: "broadcast_dimensions", Value: ir.Ints(at)})
}

// element returns element i of a vector as a scalar.
func (r *rewriter) element(v *ir.Value, i int) *ir.Value {
	one := r.do("slice", v.Type.With(1), []*ir.Value{v}, ir.Attribute{Key: "limit_indices", Value: ir.Ints{i + 1}},
		ir.Attribute{Key: "start_indices", Value: ir.Ints{i}}, ir.Attribute{Key: "strides", Value: ir.Ints{1}})
	return r.do("reshape", v.Type.With(), []*ir.Value{one})
}

// constant adds a scalar.
func (r *rewriter) constant(number ir.Number, dtype dtypes.DType) *ir.Value {
	t := ir.Tensor(dtype)
	return r.do("constant", t, nil, ir.Attribute{Key: ir.Elements, Value: &ir.Dense{Type: t, Splat: &number}})
}

func (r *rewriter) constantInt(i int) *ir.Value { return r.constant(ir.Integer(i), dtypes.Int32) }

func (r *rewriter) float(x float64, dtype dtypes.DType) *ir.Value {
	text := fmt.Sprintf("%e", x)
	if dtype == dtypes.Float64 || x != math.Trunc(x) {
		text = fmt.Sprintf("%.17e", x)
	}
	return r.constant(ir.Float(text, x), dtype)
}

// zero returns a function that adds the zero of a dtype.
func (r *rewriter) zero(dtype dtypes.DType) func() *ir.Value {
	return func() *ir.Value { return r.constant(ir.Zero(dtype), dtype) }
}
