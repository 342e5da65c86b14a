package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// Pad adds fill before, after and between the elements of each axis; negative amounts at the ends
// remove.
func (f *Function) Pad(x, fill compute.Value, axes ...compute.PadAxis) (compute.Value, error) {
	return f.op("Pad", with(x, fill), func(in []*stablehlo.Value) *stablehlo.Value {
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
		return f.pad(in[0], in[1], start, end, interior)
	})
}

// pad is Pad of rank 1 or more. It writes to start, end and interior.
func (f *Function) pad(x, fill *stablehlo.Value, start, end, interior []int) *stablehlo.Value {
	if f.partitioned() {
		c := f.chain()
		for axis, gap := range interior {
			x, end[axis], interior[axis] = c.gaps(x, fill, axis, gap, end[axis])
		}
		if slices.Max(interior) <= 0 {
			if out, ok := c.onlyFill(x, fill, start, end); ok {
				return out
			}
			x = c.crop(x, start, end)
		}
		x = f.padded(x, fill)
	}
	return must(stablehlo.Pad(x, fill, start, end, interior))
}

// partitioned reports whether the compiler splits the program over devices.
func (f *Function) partitioned() bool {
	return f.builder.backend.opts.Partitioned || f.builder.partitions > 1
}

// padded returns x behind a barrier with fill in a partitioned program. XLA's partitioner caches the
// padded shards of an operand without the fill value, and reuses them for a pad with another one.
func (f *Function) padded(x, fill *stablehlo.Value) *stablehlo.Value {
	if !f.partitioned() {
		return x
	}
	return must(stablehlo.OptimizationBarrier(x, fill))[0]
}

// gaps puts gap times fill behind each element along axis, and returns what is left to pad at the
// end and between. XLA's partitioner takes the wrong elements where it splits an axis with paddings
// between them, and ends the process where those at its ends are negative besides; so each element
// gets an axis of its own, whose end is padded.
func (c chain) gaps(x, fill *stablehlo.Value, axis, gap, end int) (*stablehlo.Value, int, int) {
	const most = 1 << 40 // what is beyond is refused before it is compiled
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

// onlyFill is the result of paddings that take away all of x; false if some of it stays.
func (c chain) onlyFill(x, fill *stablehlo.Value, start, end []int) (*stablehlo.Value, bool) {
	if !fill.Shape().IsScalar() || fill.Shape().DType != x.Shape().DType {
		return nil, false
	}
	out, gone := x.Shape().Clone(), false
	for axis, dim := range x.Shape().Dimensions {
		out.Dimensions[axis] = dim + start[axis] + end[axis]
		if out.Dimensions[axis] < 0 {
			return nil, false // for the op to refuse
		}
		gone = gone || max(-start[axis], 0) >= dim-max(-end[axis], 0)
	}
	if !gone {
		return nil, false
	}
	return c.broadcast(fill, out), true
}

// crop takes away what start and end say with negative numbers, and makes those 0. XLA's
// partitioner takes a pad that removes as much as it adds for none.
func (c chain) crop(x *stablehlo.Value, start, end []int) *stablehlo.Value {
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
