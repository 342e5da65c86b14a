package sharding

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Kind is the kind of an [OpSharding], or of a subgroup of a tiled OpSharding.
type Kind int

// The kinds of shardings, with the values of xla.OpSharding.Type.
const (
	KindReplicated Kind = 0 // REPLICATED: every device holds the whole tensor
	KindMaximal    Kind = 1 // MAXIMAL: one device holds the whole tensor
	KindTuple      Kind = 2 // TUPLE: each element of a tuple has its own sharding
	KindTiled      Kind = 3 // OTHER: the devices hold tiles
	KindManual     Kind = 4 // MANUAL: the program itself says which device holds what
	KindUnknown    Kind = 5 // UNKNOWN: the partitioner decides
	KindUnreduced  Kind = 6 // UNREDUCED: each device holds a part of a sum
)

// String returns the kind in lower case, as HLO text writes it.
func (k Kind) String() string {
	return enum.Name(k, "replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
}

// OpSharding is a sharding in the older form of XLA's GSPMD partitioner and of TensorFlow
// (xla.OpSharding, and xla_sharding.Sharding in TensorFlow's Python): it names devices, not axes.
// The zero value is replicated.
//
// Where the message has two forms of one sharding, OpSharding has one: a replicated trailing tile
// dimension is a subgroup of kind replicated, and a maximal sharding has no tile dimensions, though
// TensorFlow writes [1].
//
// An OpSharding is an immutable value that may be shared between goroutines.
type OpSharding struct {
	kind   Kind
	device int // maximal
	tiles  tiles
	// subgroups are the kinds of the trailing tile dimensions that belong to no tensor dimension.
	subgroups []Kind
	elements  []OpSharding // tuple
}

// OpReplicated returns the sharding of a tensor that every device holds whole.
func OpReplicated() OpSharding { return OpSharding{} }

// OpManual returns the sharding of a tensor inside a manual region, in which the program itself
// says which device holds what: TensorFlow's Sharding.manual.
func OpManual() OpSharding { return OpSharding{kind: KindManual} }

// OpUnknown returns the sharding that leaves the layout to the partitioner.
func OpUnknown() OpSharding { return OpSharding{kind: KindUnknown} }

// OpMaximal returns the sharding of a tensor that only one device holds: TensorFlow's
// Sharding.assign_device.
func OpMaximal(device int) (OpSharding, error) {
	if device < 0 {
		return OpSharding{}, wrong("maximal", "count devices from 0", "device %d is negative", device)
	}
	return OpSharding{kind: KindMaximal, device: device}, nil
}

// OpTile returns the sharding that cuts dimension i of a tensor into dims[i] tiles: TensorFlow's
// Sharding.tile. The device devices[k] holds the tile at row-major place k; all devices are
// different. Nil devices stand for 0, 1, 2 and so on. Without dims the sharding is that of a scalar
// on one device.
func OpTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices)
}

// OpPartialTile returns the sharding of [OpTile] with copies: the last entry of dims is the number
// of devices that hold each tile. It is TensorFlow's Sharding.partial_tile.
func OpPartialTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices, KindReplicated)
}

// OpSubgroupTile returns the sharding of [OpTile] with subgroups: the last len(subgroups) entries
// of dims belong to no tensor dimension, and the kinds of the subgroups (replicated, manual or
// unreduced) say what the devices along these dimensions hold. It is TensorFlow's
// Sharding.subgroup_tile.
func OpSubgroupTile(dims, devices []int, subgroups ...Kind) (OpSharding, error) {
	s := OpSharding{kind: KindTiled, tiles: tiles{dims: slices.Clone(dims)}, subgroups: slices.Clone(subgroups)}
	size, err := tileCount("tile dimensions", dims)
	if err != nil {
		return OpSharding{}, err
	}
	if devices == nil {
		s.tiles.reshape, s.tiles.perm = []int{size}, []int{0}
	} else {
		s.tiles.devices = slices.Clone(devices)
	}
	return s, s.checkTiles()
}

// OpIotaTile returns the sharding of [OpSubgroupTile] over the devices 0, 1, 2 and so on, in the
// order in which they are read from an array: row-major of dimensions reshape, and then transposed
// by perm. A nil perm does not transpose it.
func OpIotaTile(dims, reshape, perm []int, subgroups ...Kind) (OpSharding, error) {
	s := OpSharding{kind: KindTiled, subgroups: slices.Clone(subgroups)}
	s.tiles = tiles{dims: slices.Clone(dims), reshape: slices.Clone(reshape), perm: slices.Clone(perm)}
	if perm == nil {
		for i := range reshape {
			s.tiles.perm = append(s.tiles.perm, i)
		}
	}
	return s, s.checkTiles()
}

// OpTuple returns the sharding of a tuple from those of its elements. An element that is a tuple is
// an error.
func OpTuple(elements ...OpSharding) (OpSharding, error) {
	for i, e := range elements {
		if e.kind == KindTuple {
			return OpSharding{}, wrong("tuple", "flatten it", "element %d is a tuple", i)
		}
	}
	return OpSharding{kind: KindTuple, elements: slices.Clone(elements)}, nil
}

func (s OpSharding) checkTiles() error {
	t := s.tiles
	size, err := tileCount("tile dimensions", t.dims)
	if err != nil {
		return err
	}
	if len(s.subgroups) > len(t.dims) {
		return wrong("tile", "give each subgroup a dimension", "tile dimensions %v are too few for %d subgroups", t.dims, len(s.subgroups))
	}
	for _, k := range s.subgroups {
		if k != KindReplicated && k != KindManual && k != KindUnreduced {
			return wrong("tile", "use replicated, manual or unreduced", "a subgroup of kind %v", k)
		}
	}
	if t.devices == nil {
		return t.checkIota(size)
	}
	if len(t.devices) != size {
		return wrong("tile", fmt.Sprintf("give %d", size), "%d devices for tile dimensions %v", len(t.devices), t.dims)
	}
	seen := make(map[int]bool, size)
	for _, d := range t.devices {
		if d < 0 || seen[d] {
			return wrong("tile", "give every tile a device of its own, from 0", "device %d in a tile assignment is negative or repeated", d)
		}
		seen[d] = true
	}
	return nil
}

// Kind returns the kind of the sharding.
func (s OpSharding) Kind() Kind { return s.kind }

// Device returns the device of a maximal sharding, and -1 for any other sharding.
func (s OpSharding) Device() int {
	if s.kind != KindMaximal {
		return -1
	}
	return s.device
}

// TileDims returns a copy of the numbers of tiles in each dimension, subgroups last. It returns nil
// if the sharding is not tiled.
func (s OpSharding) TileDims() []int { return slices.Clone(s.tiles.dims) }

// TileDevices returns the device of each tile in row-major order. It returns nil if the sharding is
// not tiled.
func (s OpSharding) TileDevices() []int {
	if s.kind != KindTiled {
		return nil
	}
	return s.tiles.expand()
}

// Subgroups returns a copy of the kinds of the trailing tile dimensions that belong to no tensor
// dimension.
func (s OpSharding) Subgroups() []Kind { return slices.Clone(s.subgroups) }

// Elements returns a copy of the shardings of a tuple's elements.
func (s OpSharding) Elements() []OpSharding { return slices.Clone(s.elements) }

// TileShape returns the numbers of tiles in each tensor dimension, without subgroups: TensorFlow's
// get_sharding_tile_shape. It returns [1] for a maximal sharding, as TensorFlow does, and nil for a
// sharding without tiles.
func (s OpSharding) TileShape() []int {
	switch s.kind {
	case KindMaximal:
		return []int{1}
	case KindTiled:
		return slices.Clone(s.tiles.dims[:len(s.tiles.dims)-len(s.subgroups)])
	}
	return nil
}

// Equal reports whether both shardings put the same tiles on the same devices in the same
// arrangement, whether the devices are listed or in the iota form. To compare the meaning of two
// shardings, compare their [OpSharding.Canonical].
func (s OpSharding) Equal(other OpSharding) bool {
	return s.kind == other.kind && s.device == other.device &&
		slices.Equal(s.tiles.dims, other.tiles.dims) &&
		slices.Equal(s.subgroups, other.subgroups) &&
		slices.EqualFunc(s.elements, other.elements, OpSharding.Equal) &&
		slices.Equal(s.TileDevices(), other.TileDevices())
}
