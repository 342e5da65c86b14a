package lowering

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
)

// comparisonType is the kind of comparison StableHLO wants named for a dtype.
func comparisonType(d dtypes.DType) types.ComparisonType {
	switch {
	case d.IsFloat() || d.IsComplex():
		return types.CompareFloat
	case d == dtypes.Bool || d.IsUnsigned():
		return types.CompareUnsigned
	}
	return types.CompareSigned
}

// errNoOrder refuses what complex numbers have no answer to: the CPU compiler ends the process over
// it.
var errNoOrder = errors.New("complex numbers have no order: compare their magnitudes or parts")

func (f *Function) compare(name string, dir types.ComparisonDirection, lhs, rhs compute.Value) (compute.Value, error) {
	return f.binary(name, func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		if l.Shape().DType.IsComplex() && dir != types.CompareEQ && dir != types.CompareNE {
			return nil, errNoOrder
		}
		return stablehlo.Compare(l, r, dir, comparisonType(l.Shape().DType))
	}, lhs, rhs)
}

// compareTotal compares in the order -NaN < -Inf < ... < -0 < +0 < ... < +Inf < +NaN. It differs
// from the usual order for floats only, and StableHLO has it for them only.
func (f *Function) compareTotal(name string, dir types.ComparisonDirection, lhs, rhs compute.Value) (compute.Value, error) {
	return f.binary(name, func(l, r *stablehlo.Value) (*stablehlo.Value, error) {
		if l.Shape().DType.IsComplex() {
			return nil, errNoOrder
		}
		kind := comparisonType(l.Shape().DType)
		if kind == types.CompareFloat {
			kind = types.CompareTotalOrder
		}
		return stablehlo.Compare(l, r, dir, kind)
	}, lhs, rhs)
}

// Equal returns lhs == rhs.
func (f *Function) Equal(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("Equal", types.CompareEQ, lhs, rhs)
}

// NotEqual returns lhs != rhs.
func (f *Function) NotEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("NotEqual", types.CompareNE, lhs, rhs)
}

// GreaterThan returns lhs > rhs.
func (f *Function) GreaterThan(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("GreaterThan", types.CompareGT, lhs, rhs)
}

// GreaterOrEqual returns lhs >= rhs.
func (f *Function) GreaterOrEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("GreaterOrEqual", types.CompareGE, lhs, rhs)
}

// LessThan returns lhs < rhs.
func (f *Function) LessThan(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("LessThan", types.CompareLT, lhs, rhs)
}

// LessOrEqual returns lhs <= rhs.
func (f *Function) LessOrEqual(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compare("LessOrEqual", types.CompareLE, lhs, rhs)
}

// EqualTotalOrder returns lhs == rhs in the total order.
func (f *Function) EqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("EqualTotalOrder", types.CompareEQ, lhs, rhs)
}

// NotEqualTotalOrder returns lhs != rhs in the total order.
func (f *Function) NotEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("NotEqualTotalOrder", types.CompareNE, lhs, rhs)
}

// GreaterThanTotalOrder returns lhs > rhs in the total order.
func (f *Function) GreaterThanTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("GreaterThanTotalOrder", types.CompareGT, lhs, rhs)
}

// GreaterOrEqualTotalOrder returns lhs >= rhs in the total order.
func (f *Function) GreaterOrEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("GreaterOrEqualTotalOrder", types.CompareGE, lhs, rhs)
}

// LessThanTotalOrder returns lhs < rhs in the total order.
func (f *Function) LessThanTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("LessThanTotalOrder", types.CompareLT, lhs, rhs)
}

// LessOrEqualTotalOrder returns lhs <= rhs in the total order.
func (f *Function) LessOrEqualTotalOrder(lhs, rhs compute.Value) (compute.Value, error) {
	return f.compareTotal("LessOrEqualTotalOrder", types.CompareLE, lhs, rhs)
}
