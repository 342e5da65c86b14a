package lowering

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// chain writes several ops in a row and keeps the first error, for ops that StableHLO has only in
// parts. After an error every call returns nil and does nothing.
type chain struct {
	fn  *stablehlo.Function
	err error
}

// do runs one step unless one before it failed.
func (c *chain) do(step func() (*stablehlo.Value, error)) *stablehlo.Value {
	if c.err != nil {
		return nil
	}
	var v *stablehlo.Value
	v, c.err = step()
	return v
}

func (c *chain) unary(op unaryOp, x *stablehlo.Value) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) { return op(x) })
}

// binary broadcasts a scalar side to the other one's shape.
func (c *chain) binary(op binaryOp, l, r *stablehlo.Value) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) {
		l, r, err := broadcastPair(l, r)
		if err != nil {
			return nil, err
		}
		return op(l, r)
	})
}

func (c *chain) compare(dir types.ComparisonDirection, l, r *stablehlo.Value) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) {
		return stablehlo.Compare(l, r, dir, comparisonType(l.Shape().DType))
	})
}

func (c *chain) selects(pred, onTrue, onFalse *stablehlo.Value) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) { return stablehlo.Select(pred, onTrue, onFalse) })
}

func (c *chain) convert(x *stablehlo.Value, d dtypes.DType) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) {
		if x.Shape().DType == d {
			return x, nil
		}
		return stablehlo.Convert(x, d)
	})
}

// broadcast spreads x over shape; axes has the place of each axis of x in it.
func (c *chain) broadcast(x *stablehlo.Value, shape xshapes.Shape, axes ...int) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) { return stablehlo.BroadcastInDim(x, shape, axes) })
}

// scalar is a constant scalar of dtype d.
func (c *chain) scalar(d dtypes.DType, value scalarValue) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) { return constantScalar(c.fn, d, value) })
}

// zeros is 0 everywhere.
func (c *chain) zeros(shape xshapes.Shape) *stablehlo.Value {
	return c.broadcast(c.scalar(shape.DType, valueZero), xshapes.Make(shape.DType, shape.Dimensions...))
}

// nonzero holds where x is not 0.
func (c *chain) nonzero(x *stablehlo.Value) *stablehlo.Value {
	return c.compare(types.CompareNE, x, c.zeros(x.Shape()))
}

// reshape gives x other dimensions of the same size.
func (c *chain) reshape(x *stablehlo.Value, dims ...int) *stablehlo.Value {
	return c.do(func() (*stablehlo.Value, error) {
		return stablehlo.Reshape(x, xshapes.Make(x.Shape().DType, dims...))
	})
}
