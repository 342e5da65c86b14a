package sharding

import (
	"fmt"
	"slices"
)

// Kind is the kind of an [OpSharding], and of a subgroup of a tiled one.
type Kind int

// The kinds, with the values of xla.OpSharding.Type.
const (
	KindReplicated Kind = 0 // every device holds all
	KindMaximal    Kind = 1 // one device holds all
	KindTuple      Kind = 2 // one sharding per element of a tuple
	KindTiled      Kind = 3 // devices hold tiles; OTHER in the proto
	KindManual     Kind = 4 // the program itself says who holds what
	KindUnknown    Kind = 5 // left to the partitioner
	KindUnreduced  Kind = 6 // devices hold parts of a sum
)

var kindNames = [...]string{"replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced"}

// String returns the kind in lower case; HLO text uses the same words.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// OpSharding is a sharding in the older form of XLA's GSPMD partitioner and of
// TensorFlow: it names devices, not axes. The zero value is replicated.
//
// Two forms of one thing are one value: a replicated trailing tile dimension is
// a subgroup of kind replicated; a maximal sharding has no tile dimensions,
// though TensorFlow writes [1].
//
// An OpSharding is an immutable value that may be shared between goroutines.
type OpSharding struct {
	kind   Kind
	device int // maximal
	tiles  tiles
	// subgroups are the kinds of the trailing tile dimensions that belong to no
	// tensor dimension.
	subgroups []Kind
	elements  []OpSharding // tuple
}

// OpReplicated returns the sharding of a tensor that every device holds whole.
func OpReplicated() OpSharding { return OpSharding{} }

// OpManual returns the sharding of a tensor inside a region that the
// partitioner leaves alone.
func OpManual() OpSharding { return OpSharding{kind: KindManual} }

// OpUnknown returns the sharding that is left to the partitioner.
func OpUnknown() OpSharding { return OpSharding{kind: KindUnknown} }

// OpMaximal returns the sharding of a tensor that only one device holds.
func OpMaximal(device int) (OpSharding, error) {
	if device < 0 {
		return OpSharding{}, fmt.Errorf("sharding: maximal: device %d is negative", device)
	}
	return OpSharding{kind: KindMaximal, device: device}, nil
}

// OpTile returns the sharding that cuts dimension i of a tensor into dims[i]
// tiles. The tile at row-major place k is held by devices[k]; devices are all
// different. Nil devices are 0, 1, 2 and so on. No dims are the one tile of a
// scalar, whole on its one device.
func OpTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices)
}

// OpPartialTile is [OpTile] with one more entry in dims, last: the number of
// devices that hold copies of each tile.
func OpPartialTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices, KindReplicated)
}

// OpSubgroupTile is [OpTile] whose last len(subgroups) entries of dims belong
// to no tensor dimension; the subgroups, replicated, manual or unreduced, say
// what their devices hold.
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

// OpIotaTile is [OpSubgroupTile] over devices 0, 1, 2 and so on, arranged
// row-major in an array of dimensions reshape, which is transposed by perm (nil
// leaves it) and then read in order.
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

// OpTuple returns the sharding of a tuple; its elements are no tuples.
func OpTuple(elements ...OpSharding) (OpSharding, error) {
	for i, e := range elements {
		if e.kind == KindTuple {
			return OpSharding{}, fmt.Errorf("sharding: tuple: element %d is a tuple; flatten it", i)
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
		return fmt.Errorf("sharding: tile dimensions %v are too few for %d subgroups; each subgroup has a dimension",
			t.dims, len(s.subgroups))
	}
	for _, k := range s.subgroups {
		if k != KindReplicated && k != KindManual && k != KindUnreduced {
			return fmt.Errorf("sharding: a subgroup of kind %v; it is replicated, manual or unreduced", k)
		}
	}
	if t.devices == nil {
		return t.checkIota(size)
	}
	if len(t.devices) != size {
		return fmt.Errorf("sharding: %d devices for tile dimensions %v; give %d", len(t.devices), t.dims, size)
	}
	seen := make(map[int]bool, size)
	for _, d := range t.devices {
		if d < 0 || seen[d] {
			return fmt.Errorf("sharding: device %d in a tile assignment is negative or repeated", d)
		}
		seen[d] = true
	}
	return nil
}

// Kind returns the kind of the sharding.
func (s OpSharding) Kind() Kind { return s.kind }

// Device returns the device of a maximal sharding, else -1.
func (s OpSharding) Device() int {
	if s.kind != KindMaximal {
		return -1
	}
	return s.device
}

// TileDims returns a copy of the tiles per dimension, subgroups last; nil if
// the sharding is not tiled.
func (s OpSharding) TileDims() []int { return slices.Clone(s.tiles.dims) }

// TileDevices returns the device of each tile in row-major order; nil if the
// sharding is not tiled.
func (s OpSharding) TileDevices() []int {
	if s.kind != KindTiled {
		return nil
	}
	return s.tiles.expand()
}

// Subgroups returns a copy of the kinds of the trailing tile dimensions that
// belong to no tensor dimension.
func (s OpSharding) Subgroups() []Kind { return slices.Clone(s.subgroups) }

// Elements returns a copy of the shardings of a tuple's elements.
func (s OpSharding) Elements() []OpSharding { return slices.Clone(s.elements) }

// TileShape returns the tiles per tensor dimension, without subgroups: [1] for
// a maximal sharding, as in TensorFlow, and nil where there are no tiles.
func (s OpSharding) TileShape() []int {
	switch s.kind {
	case KindMaximal:
		return []int{1}
	case KindTiled:
		return slices.Clone(s.tiles.dims[:len(s.tiles.dims)-len(s.subgroups)])
	}
	return nil
}

// Equal reports whether both shardings put the same tiles on the same devices
// in the same arrangement. It does not matter how the devices are written;
// see [OpSharding.Canonical] for shardings of one meaning.
func (s OpSharding) Equal(other OpSharding) bool {
	return s.kind == other.kind && s.device == other.device &&
		slices.Equal(s.tiles.dims, other.tiles.dims) &&
		slices.Equal(s.subgroups, other.subgroups) &&
		slices.EqualFunc(s.elements, other.elements, OpSharding.Equal) &&
		slices.Equal(s.TileDevices(), other.TileDevices())
}
