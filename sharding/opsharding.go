package sharding

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Kind is the kind of an [OpSharding], or of a subgroup of a tiled OpSharding.
type Kind int

// The kinds of shardings have the values of xla.OpSharding.Type.
const (
	KindReplicated Kind = 0 // REPLICATED: every device holds the complete tensor
	KindMaximal    Kind = 1 // MAXIMAL: one device holds the complete tensor
	KindTuple      Kind = 2 // TUPLE: each element of a tuple has its own sharding
	KindTiled      Kind = 3 // OTHER: the devices hold tiles
	KindManual     Kind = 4 // MANUAL: the program computes with the data of each device itself
	KindUnknown    Kind = 5 // UNKNOWN: the partitioner decides
	KindUnreduced  Kind = 6 // UNREDUCED: each device holds a term of a pending sum
)

// String returns the kind in lower case: "replicated", "maximal", "tuple", "tiled", "manual",
// "unknown" or "unreduced".
func (k Kind) String() string {
	return enum.Name(k, "replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
}

// OpSharding is a sharding that lists devices instead of mesh axes. It corresponds to the
// xla.OpSharding message of XLA's GSPMD partitioner and to xla_sharding.Sharding in TensorFlow's
// Python API. The zero value is replicated.
//
// The message can express some shardings in two ways; OpSharding has one representation for each. A
// replicated trailing tile dimension is a subgroup of kind replicated. A maximal sharding has no
// tile dimensions, although TensorFlow writes [1].
//
// An OpSharding is an immutable value and may be shared between goroutines.
type OpSharding struct {
	kind   Kind
	device int // maximal
	tiles  deviceTiles
	// subgroups contains the kinds of the trailing tile dimensions that split no tensor dimension.
	subgroups []Kind
	elements  []OpSharding // tuple
}

// OpReplicated returns the sharding of a tensor that every device holds completely.
func OpReplicated() OpSharding { return OpSharding{} }

// OpManual returns the sharding of a tensor inside a manual region, where the program instead of
// the partitioner determines the data of each device. It corresponds to TensorFlow's
// Sharding.manual.
func OpManual() OpSharding { return OpSharding{kind: KindManual} }

// OpUnknown returns the sharding that lets the partitioner choose.
func OpUnknown() OpSharding { return OpSharding{kind: KindUnknown} }

// OpMaximal returns the sharding of a tensor that only the given device holds. It corresponds to
// TensorFlow's Sharding.assign_device.
func OpMaximal(device int) (OpSharding, error) {
	if device < 0 {
		return OpSharding{}, invalidError("maximal", "device numbers start at 0", "device %d is negative", device)
	}
	return OpSharding{kind: KindMaximal, device: device}, nil
}

// OpTile returns the sharding that splits dimension i of a tensor into dims[i] tiles. Device
// devices[k] holds tile k in row-major order; no device may be repeated. Nil devices means 0, 1, 2
// and so on. Nil dims is the sharding of a scalar on one device. It corresponds to TensorFlow's
// Sharding.tile.
func OpTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices)
}

// OpPartialTile returns the sharding of [OpTile] with replication: the last entry of dims is the
// number of devices that hold each tile. It corresponds to TensorFlow's Sharding.partial_tile.
func OpPartialTile(dims, devices []int) (OpSharding, error) {
	return OpSubgroupTile(dims, devices, KindReplicated)
}

// OpSubgroupTile returns the sharding of [OpTile] with subgroups. The last len(subgroups) entries
// of dims split no tensor dimension; the kind of each subgroup determines what the devices along
// its dimension hold. A subgroup is replicated, manual or unreduced. It corresponds to TensorFlow's
// Sharding.subgroup_tile.
func OpSubgroupTile(dims, devices []int, subgroups ...Kind) (OpSharding, error) {
	s := OpSharding{kind: KindTiled, tiles: deviceTiles{dims: slices.Clone(dims)}, subgroups: slices.Clone(subgroups)}
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

// OpIotaTile returns the sharding of [OpSubgroupTile] with a computed list of devices: the numbers
// 0, 1, 2 and so on, reshaped to the dimensions reshape and transposed by perm. A nil perm does not
// transpose.
func OpIotaTile(dims, reshape, perm []int, subgroups ...Kind) (OpSharding, error) {
	s := OpSharding{kind: KindTiled, subgroups: slices.Clone(subgroups)}
	s.tiles = deviceTiles{dims: slices.Clone(dims), reshape: slices.Clone(reshape), perm: slices.Clone(perm)}
	if perm == nil {
		for i := range reshape {
			s.tiles.perm = append(s.tiles.perm, i)
		}
	}
	return s, s.checkTiles()
}

// OpTuple returns the sharding of a tuple with the given element shardings. The elements must not
// be tuples.
func OpTuple(elements ...OpSharding) (OpSharding, error) {
	for i, e := range elements {
		if e.kind == KindTuple {
			return OpSharding{}, invalidError("tuple", "flatten the tuple", "element %d is a tuple", i)
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
		return invalidError("tile", "add one tile dimension for each subgroup",
			"tile dimensions %v are too few for %d subgroups", t.dims, len(s.subgroups))
	}
	for _, k := range s.subgroups {
		if k != KindReplicated && k != KindManual && k != KindUnreduced {
			return invalidError("tile", "use replicated, manual or unreduced", "invalid subgroup kind %v", k)
		}
	}
	if t.devices == nil {
		return t.checkIota(size)
	}
	if len(t.devices) != size {
		return invalidError("tile", fmt.Sprintf("list %d devices", size), "%d devices for tile dimensions %v", len(t.devices),
			t.dims)
	}
	seen := make(map[int]bool, size)
	for _, d := range t.devices {
		if d < 0 || seen[d] {
			return invalidError("tile", "list a different device for each tile, numbered from 0",
				"device %d in a tile assignment is negative or repeated", d)
		}
		seen[d] = true
	}
	return nil
}

// Kind returns the kind of the sharding.
func (s OpSharding) Kind() Kind { return s.kind }

// Device returns the device of a maximal sharding, or -1 for any other sharding.
func (s OpSharding) Device() int {
	if s.kind != KindMaximal {
		return -1
	}
	return s.device
}

// TileDims returns a copy of the number of tiles in each dimension, followed by the sizes of the
// subgroups. It returns nil if the sharding is not tiled.
func (s OpSharding) TileDims() []int { return slices.Clone(s.tiles.dims) }

// TileDevices returns the device of each tile, in row-major order. It returns nil if the sharding
// is not tiled.
func (s OpSharding) TileDevices() []int {
	if s.kind != KindTiled {
		return nil
	}
	return s.tiles.deviceList()
}

// Subgroups returns a copy of the kinds of the trailing tile dimensions that split no tensor
// dimension.
func (s OpSharding) Subgroups() []Kind { return slices.Clone(s.subgroups) }

// Elements returns a copy of the element shardings of a tuple.
func (s OpSharding) Elements() []OpSharding { return slices.Clone(s.elements) }

// TileShape returns the number of tiles into which each tensor dimension is split. Like
// TensorFlow's get_sharding_tile_shape, it returns [1] if a single device holds the tensor. For
// replicated and other shardings that are not tiled, it returns nil.
func (s OpSharding) TileShape() []int {
	switch s.kind {
	case KindMaximal:
		return []int{1}
	case KindTiled:
		return slices.Clone(s.tiles.dims[:len(s.tiles.dims)-len(s.subgroups)])
	}
	return nil
}

// Equal reports whether both shardings assign the same tiles and subgroups to the same devices. It
// does not matter whether the devices are listed or computed (see [OpIotaTile]). To compare
// shardings by meaning, compare the results of [OpSharding.Canonical].
func (s OpSharding) Equal(other OpSharding) bool {
	return s.kind == other.kind && s.device == other.device &&
		slices.Equal(s.tiles.dims, other.tiles.dims) &&
		slices.Equal(s.subgroups, other.subgroups) &&
		slices.EqualFunc(s.elements, other.elements, OpSharding.Equal) &&
		slices.Equal(s.TileDevices(), other.TileDevices())
}
