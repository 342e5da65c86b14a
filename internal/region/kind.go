package region

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// Kind is the kind of a region. String returns its name for errors.
type Kind interface{ String() string }

// Loop is a region that runs N times sequentially, such as the layers of a model.
type Loop struct {
	N      int
	Policy RematPolicy
}

// Block is a region whose values the backward pass recomputes, except for the values that Policy
// keeps.
type Block struct{ Policy RematPolicy }

// Manual is a region in which each device computes on its own shards and communicates by explicit
// collectives over Axes.
type Manual struct{ Axes []string }

// On is a region that only one logical device runs. Its results are sent to the other devices.
type On struct{ Device int }

func (Loop) String() string { return "loop" }

func (Block) String() string { return "remat" }

func (Manual) String() string { return "manual" }

func (On) String() string { return "on" }

// RematPolicy is a rematerialization policy. It selects the values of a forward pass that are kept
// for the backward pass, which recomputes all others. The zero value keeps all values that the
// backward pass reads. The arguments of a region are always kept.
type RematPolicy struct {
	// Selective is set if only selected values are kept: products (dot products and convolutions)
	// if Products is set, and values whose [CheckpointName] is one of Names.
	Selective bool
	Products  bool
	Names     []string
	// OnHost keeps values in host memory that the devices can access, instead of device memory.
	OnHost bool
}

// KeepsName reports whether the values with a name are kept.
func (k RematPolicy) KeepsName(name string) bool { return slices.Contains(k.Names, name) }

// Mapping describes how a value inside a region corresponds to an argument or result outside. It is
// an [Identity], [Carry], [Slice] or [Shard].
type Mapping interface {
	// InnerShape returns the shape inside the region for a shape outside. OuterShape is the
	// inverse. The error describes an invalid shape.
	InnerShape(outside shapes.Shape) (shapes.Shape, error)
	OuterShape(inside shapes.Shape) shapes.Shape
}

// Identity is the mapping of a value that is equal inside and outside a region. A result of a loop
// with this mapping is the sum over all iterations.
type Identity struct{}

// Carry is the mapping of a loop's state, which has the same shape inside and outside. The carried
// results of an iteration are the carried arguments of the next iteration, in order. The results of
// the loop are the results of the last iteration.
type Carry struct{ Identity }

// Slice is the mapping of a stack of N tensors along dimension 0. Iteration i of a loop receives or
// returns slice i.
type Slice struct{ N int }

// Shard is the mapping of a sharded tensor: inside the region, each device has only its shard.
// Dimension i is split over Axes[i], slowest axis first, and must be divisible by the product of
// their sizes. Devices that differ only in other axes have equal shards.
type Shard struct{ Axes [][]sharding.Axis }

// InnerShape implements [Mapping].
func (Identity) InnerShape(s shapes.Shape) (shapes.Shape, error) { return s, nil }

// OuterShape implements [Mapping].
func (Identity) OuterShape(s shapes.Shape) shapes.Shape { return s }

// InnerShape implements [Mapping].
func (c Slice) InnerShape(s shapes.Shape) (shapes.Shape, error) {
	if s.Rank() == 0 || s.Dimensions[0] != c.N {
		return s, fmt.Errorf("dimension 0 of shape %v is not the number of runs, %d", s.Dimensions, c.N)
	}
	return shapes.Make(s.DType, s.Dimensions[1:]...), nil
}

// OuterShape implements [Mapping].
func (c Slice) OuterShape(s shapes.Shape) shapes.Shape {
	return shapes.Make(s.DType, append([]int{c.N}, s.Dimensions...)...)
}

// InnerShape implements [Mapping].
func (c Shard) InnerShape(s shapes.Shape) (shapes.Shape, error) {
	return c.mapDims(s, func(dim, parts int) int { return dim / parts }), nil
}

// OuterShape implements [Mapping].
func (c Shard) OuterShape(s shapes.Shape) shapes.Shape {
	return c.mapDims(s, func(dim, parts int) int { return dim * parts })
}

// mapDims returns s with each dimension replaced by size(dim, parts). parts is the number of shards
// of the dimension.
func (c Shard) mapDims(s shapes.Shape, size func(dim, parts int) int) shapes.Shape {
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
