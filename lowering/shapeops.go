package lowering

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// BroadcastInDim broadcasts x to shape. Axis i of x becomes axis broadcastAxes[i].
func (f *Function) BroadcastInDim(x compute.Value, shape shapes.Shape, broadcastAxes []int) (compute.Value, error) {
	return f.addOp("BroadcastInDim", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(stablehlo.BroadcastInDim(in[0], must(StableHLOShape(shape)), broadcastAxes))
	})
}

// Iota returns a tensor of the given shape. Each element is its index along axis.
func (f *Function) Iota(shape shapes.Shape, axis int) (compute.Value, error) {
	return f.addOp("Iota", nil, func([]*stablehlo.Value) *stablehlo.Value {
		return must(f.fn.Iota(must(StableHLOShape(shape)), axis))
	})
}

// Reshape returns x with other dimensions of the same total size.
func (f *Function) Reshape(x compute.Value, dimensions ...int) (compute.Value, error) {
	return f.addOp("Reshape", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		s := must(StableHLOShape(shapes.Shape{DType: in[0].Shape().DType, Dimensions: dimensions}))
		if slices.Equal(s.Dimensions, in[0].Shape().Dimensions) {
			return in[0]
		}
		return must(stablehlo.Reshape(in[0], s))
	})
}

// Transpose permutes the axes of x: axis i of the result is axis permutation[i] of x.
func (f *Function) Transpose(x compute.Value, permutation ...int) (compute.Value, error) {
	return f.addOp("Transpose", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		v := must(stablehlo.Transpose(in[0], permutation...))
		f.halfProducts.recordTranspose(in[0], v, slices.Clone(permutation))
		return v
	})
}

// Reverse reverses the order along the given axes.
func (f *Function) Reverse(x compute.Value, axes ...int) (compute.Value, error) {
	return f.addOp("Reverse", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(stablehlo.Reverse(in[0], axes...))
	})
}

// Concatenate concatenates operands along axis.
func (f *Function) Concatenate(axis int, operands ...compute.Value) (compute.Value, error) {
	return f.addOp("Concatenate", operands, func(in []*stablehlo.Value) *stablehlo.Value {
		if len(in) == 1 {
			return in[0]
		}
		if v := f.mergeConvolutions(axis, in); v != nil {
			return v
		}
		return must(stablehlo.Concatenate(axis, in...))
	})
}

// Slice returns the elements starts[i], starts[i]+strides[i], ... below limits[i] of each axis i.
func (f *Function) Slice(x compute.Value, starts, limits, strides []int) (compute.Value, error) {
	return f.addOp("Slice", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		limits := slices.Clone(limits)
		for axis, limit := range limits {
			if limit == shapes.DynamicDim && axis < in[0].Shape().Rank() {
				limits[axis] = in[0].Shape().Dimensions[axis]
			}
		}
		if empty, ok := emptySlice(in[0].Shape(), starts, limits, strides); ok {
			return f.opBuilder().zeros(empty)
		}
		v := must(stablehlo.Slice(in[0], starts, limits, strides))
		f.convolutions.recordSlice(v, in[0], starts, limits, strides)
		return v
	})
}

// emptySlice returns the shape of a slice if the slice is empty and at the end of an axis. The
// StableHLO builder rejects such slices. For other slices emptySlice returns false.
func emptySlice(x xshapes.Shape, starts, limits, strides []int) (xshapes.Shape, bool) {
	rank := x.Rank()
	if len(starts) != rank || len(limits) != rank || len(strides) != 0 && len(strides) != rank {
		return x, false
	}
	out, atEnd := x.Clone(), false
	for axis, dim := range x.Dimensions {
		start, limit, stride := starts[axis], limits[axis], 1
		if len(strides) > 0 {
			stride = strides[axis]
		}
		if start < 0 || start > limit || limit > dim || stride < 1 {
			return x, false
		}
		out.Dimensions[axis] = (limit - start + stride - 1) / stride
		atEnd = atEnd || start == dim
	}
	return out, atEnd
}

// startIndices returns one scalar start index per axis. given contains these scalars or one vector.
func (c opBuilder) startIndices(given []*stablehlo.Value, rank int) []*stablehlo.Value {
	given = slices.Clone(given)
	for i, v := range given {
		given[i] = c.widenIndices(v)
	}
	if len(given) != 1 || given[0].Shape().Rank() != 1 {
		return given
	}
	vector := given[0]
	out := make([]*stablehlo.Value, rank)
	for i := range out {
		out[i] = c.reshape(c.slice(vector, []int{i}, []int{i + 1}))
	}
	return out
}

// DynamicSlice returns a block of the given sizes at computed start indices, which are clamped so
// that the block is inside x.
func (f *Function) DynamicSlice(x compute.Value, starts []compute.Value, sizes []int) (compute.Value, error) {
	return f.addOp("DynamicSlice", append(valueList(x), starts...), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(stablehlo.DynamicSlice(in[0], f.opBuilder().startIndices(in[1:], in[0].Shape().Rank()), sizes))
	})
}

// clampStarts clamps start indices so that a block of shape part is inside whole. StableHLO's op
// clamps them too, but if XLA splits the axis over devices, the op would write nothing.
func (c opBuilder) clampStarts(at []*stablehlo.Value, whole, part xshapes.Shape) {
	for axis := range min(len(at), whole.Rank(), part.Rank()) {
		room := whole.Dimensions[axis] - part.Dimensions[axis]
		if room < 0 || !at[axis].Shape().IsScalar() || !at[axis].Shape().DType.IsInt() {
			return // the op returns the error
		}
		d := at[axis].Shape().DType
		last := c.constant(d, signedNumber(room))
		at[axis] = must(stablehlo.Clamp(c.specialConstant(d, valueZero), at[axis], last))
	}
}

// DynamicUpdateSlice writes update into x at computed start indices, which are clamped so that
// update is inside x.
func (f *Function) DynamicUpdateSlice(x, update compute.Value, starts []compute.Value) (compute.Value, error) {
	operands := append(valueList(x, update), starts...)
	return f.addOp("DynamicUpdateSlice", operands, func(in []*stablehlo.Value) *stablehlo.Value {
		c := f.opBuilder()
		at := c.startIndices(in[2:], in[0].Shape().Rank())
		c.clampStarts(at, in[0].Shape(), in[1].Shape())
		return must(stablehlo.DynamicUpdateSlice(f.copyBeforeUpdate(in[0], in[1], at), in[1], at))
	})
}
