package region

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// Kind says how a region is written. String names it in errors.
type Kind interface{ String() string }

// Loop runs its region N times, one after another: the layers of a model.
type Loop struct {
	N    int
	Keep Keep
}

// Block is a region whose values the backward pass computes again, but for those that Keep keeps.
type Block struct{ Keep Keep }

// Manual is a region over the shards that a device has itself, over the axes of this list.
type Manual struct{ Axes []string }

// On is a region whose ops one logical device runs alone. The others get its results.
type On struct{ Device int }

// String returns "loop".
func (Loop) String() string { return "loop" }

// String returns "remat".
func (Block) String() string { return "remat" }

// String returns "manual".
func (Manual) String() string { return "manual" }

// String returns "on".
func (On) String() string { return "on" }

// Keep says which values of a forward pass are kept for its backward pass, which computes the
// others again. The zero value keeps all that the backward pass reads. What enters a region is
// always kept.
type Keep struct {
	// Some is set if not all values are kept, but products (dot products and convolutions) if
	// Products is set, and what [Name] gave one of Names.
	Some     bool
	Products bool
	Names    []string
	// Host keeps values in the host's memory that the devices reach, instead of their own.
	Host bool
}

// Named reports whether the values of a name are kept.
func (k Keep) Named(name string) bool { return slices.Contains(k.Names, name) }

// Crossing says how a value crosses the border of a region: [Same], [Carry], [Slice] or [Shard].
type Crossing interface {
	// Inside returns the shape in the region of a value that has a shape outside, and Outside the
	// reverse. An error says what is wrong with the shape.
	Inside(outside shapes.Shape) (shapes.Shape, error)
	Outside(inside shapes.Shape) shapes.Shape
}

// Same is the crossing of a value that is the same inside. A result of a loop that crosses so is
// the sum of its values of all runs.
type Same struct{}

// Carry is the crossing of a loop's state, which has the same shape inside. The results of a loop
// that cross so are the values of the next run's arguments that cross so, in order, and the last are
// the loop's.
type Carry struct{ Same }

// Slice is the crossing of a stack, of which run i of a loop has slice i of dimension 0.
type Slice struct{ N int }

// Shard is the crossing of a tensor of which the region has the part of the device that runs it:
// dimension i is cut over Axes[i], which divide it, the first of them the most significant. Devices
// that differ in other axes only have the same part.
type Shard struct{ Axes [][]sharding.Axis }

// Inside implements [Crossing].
func (Same) Inside(s shapes.Shape) (shapes.Shape, error) { return s, nil }

// Outside implements [Crossing].
func (Same) Outside(s shapes.Shape) shapes.Shape { return s }

// Inside implements [Crossing].
func (c Slice) Inside(s shapes.Shape) (shapes.Shape, error) {
	if s.Rank() == 0 || s.Dimensions[0] != c.N {
		return s, fmt.Errorf("dimension 0 of shape %v is not the number of runs, %d", s.Dimensions, c.N)
	}
	return shapes.Make(s.DType, s.Dimensions[1:]...), nil
}

// Outside implements [Crossing].
func (c Slice) Outside(s shapes.Shape) shapes.Shape {
	return shapes.Make(s.DType, append([]int{c.N}, s.Dimensions...)...)
}

// Inside implements [Crossing].
func (c Shard) Inside(s shapes.Shape) (shapes.Shape, error) {
	return c.sized(s, func(dim, parts int) int { return dim / parts }), nil
}

// Outside implements [Crossing].
func (c Shard) Outside(s shapes.Shape) shapes.Shape {
	return c.sized(s, func(dim, parts int) int { return dim * parts })
}

// sized is a shape with size of each dimension and of the number of its parts.
func (c Shard) sized(s shapes.Shape, size func(dim, parts int) int) shapes.Shape {
	dims := slices.Clone(s.Dimensions)
	for i, axes := range c.Axes {
		parts := 1
		for _, axis := range axes {
			parts *= axis.Size
		}
		dims[i] = size(dims[i], parts)
	}
	return shapes.Make(s.DType, dims...)
}
