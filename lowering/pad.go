package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// Pad inserts fill before, after and between the elements of each axis. Negative amounts before or
// after remove elements.
func (f *Function) Pad(x, fill compute.Value, axes ...compute.PadAxis) (compute.Value, error) {
	return f.addOp("Pad", valueList(x, fill), func(in []*stablehlo.Value) *stablehlo.Value {
		rank := in[0].Shape().Rank()
		if len(axes) > rank {
			panic(fmt.Errorf("paddings of %d axes for rank %d", len(axes), rank))
		}
		if rank == 0 {
			return in[0]
		}
		start, end, interior := make([]int, rank), make([]int, rank), make([]int, rank)
		for i, axis := range axes {
			start[i], end[i], interior[i] = axis.Start, axis.End, axis.Interior
		}
		return f.addPad(in[0], in[1], start, end, interior)
	})
}

// addPad pads x, whose rank must be at least 1. It modifies start, end and interior.
func (f *Function) addPad(x, fill *stablehlo.Value, start, end, interior []int) *stablehlo.Value {
	if f.isPartitioned() {
		c := f.opBuilder()
		for axis, gap := range interior {
			x, end[axis], interior[axis] = c.insertGaps(x, fill, axis, gap, end[axis])
		}
		if slices.Max(interior) <= 0 {
			if out, ok := c.replaceByFill(x, fill, start, end); ok {
				return out
			}
			x = c.crop(x, start, end)
		}
		x = f.addFillBarrier(x, fill)
	}
	return must(stablehlo.Pad(x, fill, start, end, interior))
}

// isPartitioned reports whether the compiler splits the program over devices.
func (f *Function) isPartitioned() bool {
	return f.builder.backend.opts.Partitioned || f.builder.partitions > 1
}

// addFillBarrier returns x. In a partitioned program, x and fill are operands of a common
// optimization barrier. XLA's partitioner caches the padded shards of an operand without the fill
// value, and would otherwise reuse them for a pad with another fill value.
func (f *Function) addFillBarrier(x, fill *stablehlo.Value) *stablehlo.Value {
	if !f.isPartitioned() {
		return x
	}
	return must(stablehlo.OptimizationBarrier(x, fill))[0]
}

// insertGaps inserts gap copies of fill after each element along axis, and returns the remaining
// padding at the end and between elements. It does not use interior padding, because XLA's
// partitioner selects wrong elements if it splits an axis with interior padding, or aborts for
// negative padding at the ends. Instead, insertGaps pads the end of a new axis of size 1.
func (c opBuilder) insertGaps(x, fill *stablehlo.Value, axis, gap, end int) (*stablehlo.Value, int, int) {
	const most = 1 << 40 // larger sizes are rejected before compilation
	if gap <= 0 {
		return x, end, gap
	}
	dims := x.Shape().Dimensions
	switch {
	case dims[axis] < 2:
		return x, end, 0
	case gap > most/dims[axis]:
		return x, end, gap
	}
	spaced := c.reshape(x, slices.Insert(slices.Clone(dims), axis+1, 1)...)
	after, none := make([]int, len(dims)+1), make([]int, len(dims)+1)
	after[axis+1] = gap
	padded := must(stablehlo.Pad(spaced, fill, none, after, none))
	joined := slices.Clone(dims)
	joined[axis] *= 1 + gap
	return c.reshape(padded, joined...), end - gap, 0
}

// replaceByFill returns a tensor of fill values if the padding removes all elements of x. It
// returns false if an element remains.
func (c opBuilder) replaceByFill(x, fill *stablehlo.Value, start, end []int) (*stablehlo.Value, bool) {
	if !fill.Shape().IsScalar() || fill.Shape().DType != x.Shape().DType {
		return nil, false
	}
	out, gone := x.Shape().Clone(), false
	for axis, dim := range x.Shape().Dimensions {
		out.Dimensions[axis] = dim + start[axis] + end[axis]
		if out.Dimensions[axis] < 0 {
			return nil, false // the op returns the error
		}
		gone = gone || max(-start[axis], 0) >= dim-max(-end[axis], 0)
	}
	if !gone {
		return nil, false
	}
	return c.broadcast(fill, out), true
}

// crop applies negative padding amounts in start and end by slicing x, and sets these amounts to 0.
// XLA's partitioner ignores a pad that removes as many elements as it adds.
func (c opBuilder) crop(x *stablehlo.Value, start, end []int) *stablehlo.Value {
	dims := x.Shape().Dimensions
	if slices.Min(start) >= 0 && slices.Min(end) >= 0 {
		return x
	}
	from, to := make([]int, len(dims)), slices.Clone(dims)
	for axis, dim := range dims {
		from[axis], to[axis] = max(-start[axis], 0), dim-max(-end[axis], 0)
		start[axis], end[axis] = max(start[axis], 0), max(end[axis], 0)
	}
	return c.slice(x, from, to)
}
