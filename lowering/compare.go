package lowering

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

func comparisonType(d dtypes.DType) types.ComparisonType {
	switch {
	case d.IsFloat() || d.IsComplex():
		return types.CompareFloat
	case d == dtypes.Bool || d.IsUnsigned():
		return types.CompareUnsigned
	}
	return types.CompareSigned
}

// errNoOrder rejects ordered comparisons of complex numbers, which abort the CPU compiler.
var errNoOrder = errors.New("complex numbers have no order: compare their magnitudes or parts")

// addCompare adds a comparison. If total is true, floats are compared in the total order -NaN <
// -Inf < ... < -0 < +0 < ... < +Inf < +NaN.
func (f *Function) addCompare(name string, dir types.ComparisonDirection, total bool, lhs,
	rhs compute.Value) (compute.Value, error) {
	return f.addBinary(name, func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		d := l.Shape().DType
		if d.IsComplex() && (total || dir != types.CompareEQ && dir != types.CompareNE) {
			return nil, errNoOrder
		}
		kind := comparisonType(d)
		if total && kind == types.CompareFloat {
			kind = types.CompareTotalOrder
		}
		return stablehlo.Compare(l, r, dir, kind)
	}, lhs, rhs)
}

// Equal returns lhs == rhs.
func (f *Function) Equal(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("Equal", types.CompareEQ, false, lhs, rhs)
}

// NotEqual returns lhs != rhs.
func (f *Function) NotEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("NotEqual", types.CompareNE, false, lhs, rhs)
}

// GreaterThan returns lhs > rhs.
func (f *Function) GreaterThan(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("GreaterThan", types.CompareGT, false, lhs, rhs)
}

// GreaterOrEqual returns lhs >= rhs.
func (f *Function) GreaterOrEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("GreaterOrEqual", types.CompareGE, false, lhs, rhs)
}

// LessThan returns lhs < rhs.
func (f *Function) LessThan(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("LessThan", types.CompareLT, false, lhs, rhs)
}

// LessOrEqual returns lhs <= rhs.
func (f *Function) LessOrEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("LessOrEqual", types.CompareLE, false, lhs, rhs)
}

// EqualTotalOrder returns lhs == rhs in the total order.
func (f *Function) EqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("EqualTotalOrder", types.CompareEQ, true, lhs, rhs)
}

// NotEqualTotalOrder returns lhs != rhs in the total order.
func (f *Function) NotEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("NotEqualTotalOrder", types.CompareNE, true, lhs, rhs)
}

// GreaterThanTotalOrder returns lhs > rhs in the total order.
func (f *Function) GreaterThanTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("GreaterThanTotalOrder", types.CompareGT, true, lhs, rhs)
}

// GreaterOrEqualTotalOrder returns lhs >= rhs in the total order.
func (f *Function) GreaterOrEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("GreaterOrEqualTotalOrder", types.CompareGE, true, lhs, rhs)
}

// LessThanTotalOrder returns lhs < rhs in the total order.
func (f *Function) LessThanTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("LessThanTotalOrder", types.CompareLT, true, lhs, rhs)
}

// LessOrEqualTotalOrder returns lhs <= rhs in the total order.
func (f *Function) LessOrEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addCompare("LessOrEqualTotalOrder", types.CompareLE, true, lhs, rhs)
}
