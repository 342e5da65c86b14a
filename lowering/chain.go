package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// opBuilder adds ops to a StableHLO function. Its methods panic on errors, see [Function.addOps].
type opBuilder struct{ fn *stablehlo.Function }

func (f *Function) opBuilder() opBuilder { return opBuilder{f.fn} }

// binary adds an elementwise op. It broadcasts a scalar operand to the shape of the other operand.
func (c opBuilder) binary(op binaryOp, l, r *stablehlo.Value) *stablehlo.Value {
	return must(op(broadcastPair(l, r)))
}

func (c opBuilder) compare(dir types.ComparisonDirection, l, r *stablehlo.Value) *stablehlo.Value {
	return must(stablehlo.Compare(l, r, dir, comparisonType(l.Shape().DType)))
}

func (c opBuilder) selectElements(pred, onTrue, onFalse *stablehlo.Value) *stablehlo.Value {
	return must(stablehlo.Select(pred, onTrue, onFalse))
}

func (c opBuilder) convert(x *stablehlo.Value, d dtypes.DType) *stablehlo.Value {
	if x.Shape().DType == d {
		return x
	}
	return must(stablehlo.Convert(x, d))
}

func (c opBuilder) bitcast(x *stablehlo.Value, d dtypes.DType) *stablehlo.Value {
	if x.Shape().DType == d {
		return x
	}
	return must(stablehlo.BitcastConvert(x, d))
}

// broadcast broadcasts x to shape. Axis i of x becomes axis axes[i] of the result.
func (c opBuilder) broadcast(x *stablehlo.Value, shape xshapes.Shape, axes ...int) *stablehlo.Value {
	return must(stablehlo.BroadcastInDim(x, shape, axes))
}

func (c opBuilder) constant(d dtypes.DType, number ir.Number) *stablehlo.Value {
	return must(addConstant(c.fn, &ir.Dense{Splat: &number}, xshapes.Make(d)))
}

func (c opBuilder) specialConstant(d dtypes.DType, value scalarValue) *stablehlo.Value {
	return c.constant(d, scalarNumber(d, value))
}

func (c opBuilder) zeros(shape xshapes.Shape) *stablehlo.Value {
	return c.broadcast(c.specialConstant(shape.DType, valueZero), xshapes.Make(shape.DType, shape.Dimensions...))
}

func (c opBuilder) nonzero(x *stablehlo.Value) *stablehlo.Value {
	return c.compare(types.CompareNE, x, c.zeros(x.Shape()))
}

func (c opBuilder) reshape(x *stablehlo.Value, dims ...int) *stablehlo.Value {
	return must(stablehlo.Reshape(x, xshapes.Make(x.Shape().DType, dims...)))
}

func (c opBuilder) slice(x *stablehlo.Value, starts, limits []int) *stablehlo.Value {
	return must(stablehlo.Slice(x, starts, limits, nil))
}
