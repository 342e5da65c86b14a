package lowering

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// binaryOp adds an elementwise op with two operands of the same shape.
type binaryOp = func(lhs, rhs *stablehlo.Value) (*stablehlo.Value, error)

// addBinary adds an elementwise op after broadcasting its operands to a common shape.
func (f *Function) addBinary(name string, op binaryOp, lhs, rhs compute.Value) (compute.Value, error) {
	return f.addOp(name, valueList(lhs, rhs), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(op(broadcastPair(in[0], in[1])))
	})
}

// broadcastPair broadcasts two operands of the same dtype to a common shape. A scalar is broadcast
// to the other shape. For operands of the same rank, axes of size 1 are broadcast.
func broadcastPair(lhs, rhs *stablehlo.Value) (l, r *stablehlo.Value) {
	if l, r := lhs.Shape().DType, rhs.Shape().DType; l != r {
		panic(fmt.Errorf("operands have dtypes %s and %s: convert one of them", l, r))
	}
	common := broadcastShape(lhs.Shape(), rhs.Shape())
	return broadcastTo(lhs, common), broadcastTo(rhs, common)
}

func broadcastShape(l, r xshapes.Shape) xshapes.Shape {
	switch {
	case r.IsScalar():
		return l
	case l.IsScalar():
		return r
	case l.Rank() != r.Rank():
		panic(fmt.Errorf("operands have ranks %d and %d: only scalars are broadcast across ranks", l.Rank(), r.Rank()))
	}
	common := l.Clone()
	for axis, dim := range r.Dimensions {
		switch {
		case common.Dimensions[axis] == dim || dim == 1:
		case common.Dimensions[axis] == 1:
			common.Dimensions[axis] = dim
		default:
			panic(fmt.Errorf("axis %d has dimensions %d and %d: they must be equal, or one of them 1", axis, l.Dimensions[axis],
				dim))
		}
	}
	return common
}

// broadcastTo broadcasts v, which must be a scalar or have the same rank as shape.
func broadcastTo(v *stablehlo.Value, shape xshapes.Shape) *stablehlo.Value {
	s := v.Shape()
	if slices.Equal(s.Dimensions, shape.Dimensions) {
		return v
	}
	target := shape.Clone()
	target.DType = s.DType
	return must(stablehlo.BroadcastInDim(v, target, indices(s.Rank())))
}

// indices returns 0, 1, ..., n-1.
func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func requireBool(x *stablehlo.Value) {
	if d := x.Shape().DType; d != dtypes.Bool {
		panic(fmt.Errorf("logical ops want Bool, got %s: use the bitwise op", d))
	}
}

func requireSupported(d dtypes.DType) {
	if !ir.IsSupported(d) {
		panic(fmt.Errorf("dtype %s has no StableHLO type here", d))
	}
}

// requireBoolOperands wraps op with a check that its first operand is a Bool. The check is
// necessary because StableHLO's and, or and xor also accept integers.
func requireBoolOperands(op binaryOp) binaryOp {
	return func(lhs, rhs *stablehlo.Value) (*stablehlo.Value, error) {
		requireBool(lhs)
		return op(lhs, rhs)
	}
}

// Add returns lhs + rhs.
func (f *Function) Add(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Add", stablehlo.Add, lhs, rhs)
}

// Atan2 returns the angle of the point with x coordinate rhs and y coordinate lhs.
func (f *Function) Atan2(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Atan2", stablehlo.Atan2, lhs, rhs)
}

// BitwiseAnd returns lhs & rhs.
func (f *Function) BitwiseAnd(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("BitwiseAnd", stablehlo.And, lhs, rhs)
}

// BitwiseOr returns lhs | rhs.
func (f *Function) BitwiseOr(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("BitwiseOr", stablehlo.Or, lhs, rhs)
}

// BitwiseXor returns lhs ^ rhs.
func (f *Function) BitwiseXor(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("BitwiseXor", stablehlo.Xor, lhs, rhs)
}

// LogicalAnd returns lhs && rhs.
func (f *Function) LogicalAnd(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("LogicalAnd", requireBoolOperands(stablehlo.And), lhs, rhs)
}

// LogicalOr returns lhs || rhs.
func (f *Function) LogicalOr(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("LogicalOr", requireBoolOperands(stablehlo.Or), lhs, rhs)
}

// LogicalXor returns lhs != rhs.
func (f *Function) LogicalXor(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("LogicalXor", requireBoolOperands(stablehlo.Xor), lhs, rhs)
}

// Max returns the larger of each pair.
func (f *Function) Max(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Max", stablehlo.Maximum, lhs, rhs)
}

// Min returns the smaller of each pair.
func (f *Function) Min(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Min", stablehlo.Minimum, lhs, rhs)
}

// Mul returns lhs * rhs.
func (f *Function) Mul(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Mul", stablehlo.Multiply, lhs, rhs)
}

// Pow returns lhs to the power rhs.
func (f *Function) Pow(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Pow", func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		d := l.Shape().DType
		wide, ok := widerSigned[d]
		if !ok {
			return stablehlo.Power(l, r)
		}
		// XLA reads unsigned exponents with the upper bit set as negative numbers. The low bits of
		// a product do not depend on the higher bits.
		c := f.opBuilder()
		return c.convert(c.binary(stablehlo.Power, c.convert(l, wide), c.convert(r, wide)), d), nil
	}, lhs, rhs)
}

// widerSigned maps an unsigned dtype to the smallest signed dtype with all its values.
var widerSigned = map[dtypes.DType]dtypes.DType{
	dtypes.Uint8: dtypes.Int16, dtypes.Uint16: dtypes.Int32, dtypes.Uint32: dtypes.Int64,
}

// ShiftLeft returns lhs << rhs.
func (f *Function) ShiftLeft(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("ShiftLeft", stablehlo.ShiftLeft, lhs, rhs)
}

// ShiftRightArithmetic returns lhs >> rhs, filled with copies of the sign bit.
func (f *Function) ShiftRightArithmetic(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("ShiftRightArithmetic", stablehlo.ShiftRightArithmetic, lhs, rhs)
}

// ShiftRightLogical returns lhs >> rhs, filled with zeros.
func (f *Function) ShiftRightLogical(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("ShiftRightLogical", stablehlo.ShiftRightLogical, lhs, rhs)
}

// Sub returns lhs - rhs.
func (f *Function) Sub(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addBinary("Sub", stablehlo.Subtract, lhs, rhs)
}

// Clamp limits x to [min, max]. Each bound is a scalar or has the shape of x.
func (f *Function) Clamp(min, x, max compute.Value) (compute.Value, error) {
	return f.addOp("Clamp", valueList(min, x, max), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(stablehlo.Clamp(in[0], in[1], in[2]))
	})
}

// Where returns the elements of onTrue where condition is true, and the elements of onFalse
// elsewhere. Scalars are broadcast.
func (f *Function) Where(condition, onTrue, onFalse compute.Value) (compute.Value, error) {
	return f.addOp("Where", valueList(condition, onTrue, onFalse), func(in []*stablehlo.Value) *stablehlo.Value {
		if in[0].Shape().DType != dtypes.Bool {
			panic(errors.New("the condition must be Bool"))
		}
		// select accepts a scalar condition.
		shape := in[0].Shape()
		for _, v := range in[1:] {
			if !v.Shape().IsScalar() {
				shape = v.Shape()
			}
		}
		for i := 1; i < 3; i++ {
			if in[i].Shape().IsScalar() {
				in[i] = broadcastTo(in[i], shape)
			}
		}
		return must(stablehlo.Select(in[0], in[1], in[2]))
	})
}
