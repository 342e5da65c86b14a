package ragged

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The functions in this file add ops to the program. Result types follow from the operands.

// addOp adds an op with one result. attributes must be sorted by key.
func (r *rewriter) addOp(op string, result ir.Type, in []*ir.Value, attributes ...ir.Attribute) *ir.Value {
	v := r.main.NewValue(result)
	s := &ir.Statement{Op: "stablehlo." + op, Operands: in, Results: []*ir.Value{v}, Attributes: attributes}
	*r.dst = append(*r.dst, s)
	return v
}

func (r *rewriter) addBinary(op string, a, b *ir.Value) *ir.Value {
	return r.addOp(op, a.Type, []*ir.Value{a, b})
}

func (r *rewriter) addConvert(v *ir.Value, dtype dtypes.DType) *ir.Value {
	return r.addOp("convert", ir.TensorType(dtype, v.Type.Dims...), []*ir.Value{v})
}

func (r *rewriter) addCompare(direction string, a, b *ir.Value) *ir.Value {
	return r.addOp("compare", ir.TensorType(dtypes.Bool, a.Type.Dims...), []*ir.Value{a, b},
		ir.Attribute{Key: "compare_type", Value: ir.Enum{Name: "comparison_type", Value: "SIGNED"}},
		ir.Attribute{Key: ir.ComparisonDirectionKey, Value: ir.Enum{Name: ir.ComparisonDirectionKey, Value: direction}})
}

func (r *rewriter) addSelect(pred, onTrue, onFalse *ir.Value) *ir.Value {
	return r.addOp("select", onTrue.Type, []*ir.Value{pred, onTrue, onFalse})
}

func (r *rewriter) addIota(axis int, dims ...int) *ir.Value {
	return r.addOp("iota", ir.TensorType(dtypes.Int32, dims...), nil, ir.Attribute{Key: ir.IotaDimensionKey,
		Value: ir.Int(axis)})
}

// addBroadcast broadcasts v to dims. Dimension i of v becomes dimension at[i].
func (r *rewriter) addBroadcast(v *ir.Value, dims []int, at ...int) *ir.Value {
	return r.addOp("broadcast_in_dim", v.Type.WithDims(dims...), []*ir.Value{v},
		ir.Attribute{Key: "broadcast_dimensions", Value: ir.Ints(at)})
}

// addElement returns element i of a vector as a scalar.
func (r *rewriter) addElement(v *ir.Value, i int) *ir.Value {
	one := r.addOp("slice", v.Type.WithDims(1), []*ir.Value{v}, ir.Attribute{Key: "limit_indices",
		Value: ir.Ints{i + 1}},
		ir.Attribute{Key: "start_indices", Value: ir.Ints{i}}, ir.Attribute{Key: "strides", Value: ir.Ints{1}})
	return r.addOp("reshape", v.Type.WithDims(), []*ir.Value{one})
}

func (r *rewriter) addConstant(number ir.Number, dtype dtypes.DType) *ir.Value {
	t := ir.TensorType(dtype)
	return r.addOp("constant", t, nil, ir.Attribute{Key: ir.ValueKey, Value: &ir.Dense{Type: t, Splat: &number}})
}

func (r *rewriter) addInt(i int) *ir.Value { return r.addConstant(ir.Integer(i), dtypes.Int32) }

func (r *rewriter) addFloat(x float64, dtype dtypes.DType) *ir.Value {
	text := fmt.Sprintf("%e", x)
	if dtype == dtypes.Float64 || x != math.Trunc(x) {
		text = fmt.Sprintf("%.17e", x)
	}
	return r.addConstant(ir.Float(text, x), dtype)
}

// zeroOf returns a function that adds a zero constant of the dtype.
func (r *rewriter) zeroOf(dtype dtypes.DType) func() *ir.Value {
	return func() *ir.Value { return r.addConstant(ir.Zero(dtype), dtype) }
}
