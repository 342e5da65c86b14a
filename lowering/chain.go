package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// chain writes ops that StableHLO has only as a sequence of other ops.
type chain struct{ fn *stablehlo.Function }

func (f *Function) chain() chain { return chain{f.fn} }

// binary broadcasts a scalar operand to the shape of the other operand.
func (c chain) binary(op binaryOp, l, r *stablehlo.Value) *stablehlo.Value {
	return must(op(broadcastPair(l, r)))
}

func (c chain) compare(dir types.ComparisonDirection, l, r *stablehlo.Value) *stablehlo.Value {
	return must(stablehlo.Compare(l, r, dir, comparisonType(l.Shape().DType)))
}

func (c chain) selects(pred, onTrue, onFalse *stablehlo.Value) *stablehlo.Value {
	return must(stablehlo.Select(pred, onTrue, onFalse))
}

func (c chain) convert(x *stablehlo.Value, d dtypes.DType) *stablehlo.Value {
	if x.Shape().DType == d {
		return x
	}
	return must(stablehlo.Convert(x, d))
}

// bitcast adds a bitcast_convert unless x already has the dtype.
func (c chain) bitcast(x *stablehlo.Value, d dtypes.DType) *stablehlo.Value {
	if x.Shape().DType == d {
		return x
	}
	return must(stablehlo.BitcastConvert(x, d))
}

// broadcast broadcasts x to shape. axes[i] is the axis of shape that axis i of x becomes.
func (c chain) broadcast(x *stablehlo.Value, shape xshapes.Shape, axes ...int) *stablehlo.Value {
	return must(stablehlo.BroadcastInDim(x, shape, axes))
}

func (c chain) number(d dtypes.DType, number ir.Number) *stablehlo.Value {
	return must(dense(c.fn, &ir.Dense{Splat: &number}, xshapes.Make(d)))
}

func (c chain) scalar(d dtypes.DType, value scalarValue) *stablehlo.Value {
	return c.number(d, scalarNumber(d, value))
}

func (c chain) zeros(shape xshapes.Shape) *stablehlo.Value {
	return c.broadcast(c.scalar(shape.DType, valueZero), xshapes.Make(shape.DType, shape.Dimensions...))
}

// nonzero returns whether each element of x differs from 0.
func (c chain) nonzero(x *stablehlo.Value) *stablehlo.Value {
	return c.compare(types.CompareNE, x, c.zeros(x.Shape()))
}

// reshape changes the dimensions of x to dims, which have the same size.
func (c chain) reshape(x *stablehlo.Value, dims ...int) *stablehlo.Value {
	return must(stablehlo.Reshape(x, xshapes.Make(x.Shape().DType, dims...)))
}

// slice returns the elements of x from starts up to limits.
func (c chain) slice(x *stablehlo.Value, starts, limits []int) *stablehlo.Value {
	return must(stablehlo.Slice(x, starts, limits, nil))
}
