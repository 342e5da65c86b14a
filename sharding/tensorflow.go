package sharding

import (
	"fmt"
	"slices"
)

// UnknownSize is the size of a tensor dimension that is not known yet. [SplitToLogicalDevices] and
// [OpSplit] accept it in shapes.
const UnknownSize = -1

// AssignToLogicalDevice returns the sharding of a tensor that only one logical device of a replica
// holds. A replica has count logical devices, numbered from 0. It corresponds to TPUStrategy's
// experimental_assign_to_logical_device.
func AssignToLogicalDevice(logical, count int) (OpSharding, error) {
	if logical < 0 || logical >= count {
		return OpSharding{}, invalidError("assign", fmt.Sprintf("a replica has %d logical devices, numbered from 0", count),
			"no logical device %d", logical)
	}
	return OpMaximal(logical)
}

// ReplicateToLogicalDevices returns the sharding of a tensor that every logical device of a replica
// holds completely. It corresponds to TPUStrategy's experimental_replicate_to_logical_devices.
func ReplicateToLogicalDevices() OpSharding { return OpReplicated() }

// SplitToLogicalDevices returns the sharding that splits dimension i of a tensor into partitions[i]
// equal shards, over all count logical devices of a replica. It corresponds to TPUStrategy's
// experimental_split_to_logical_devices.
//
// It checks the arguments in TensorFlow's order: the rank, the divisibility of each dimension, and
// that the product of partitions is count. Divisibility is not checked for a dimension of
// [UnknownSize], and any partition divides size 0. An indivisible dimension is a [*SpecError]. A
// nil shape means an unknown rank and is an error; the shape of a scalar is []int{}.
func SplitToLogicalDevices(shape, partitions []int, count int) (OpSharding, error) {
	if shape == nil {
		return OpSharding{}, invalidError("split", "pass its shape, []int{} for a scalar", "the tensor's rank is unknown")
	}
	if len(partitions) != len(shape) {
		return OpSharding{}, invalidError("split", fmt.Sprintf("pass one for each of its %d dimensions", len(shape)),
			"%d partitions %v for the shape %v", len(partitions), partitions, shape)
	}
	product := 1
	for i, n := range partitions {
		if n < 1 {
			return OpSharding{}, invalidError("split", "use 1 for a dimension that is not split",
				"dimension %d is split into %d shards", i, n)
		}
		if size := shape[i]; size != UnknownSize && (size < 0 || size%n != 0) {
			return OpSharding{}, &SpecError{Problem: Indivisible, Dim: i, DimSize: size, Axis: "partitions", AxisSize: n,
				Hint: "pad the dimension, or split another"}
		}
		if product <= count {
			product *= min(n, count+1)
		}
	}
	if product != count {
		return OpSharding{}, invalidError("split", "the product of the partitions must be this number",
			"the product of the partitions %v is not the number of logical devices, %d", partitions, count)
	}
	if len(shape) == 0 {
		return OpReplicated(), nil
	}
	op, err := OpTile(partitions, nil)
	return op.WithDeviceList(), err
}

// OpSplit returns the sharding that splits dimension dim of a tensor over the devices 0 to count-1.
// The split is uneven if count does not divide the dimension. A negative dim counts from the end.
// The dimension must have at least count elements, unless its size is [UnknownSize]. It corresponds
// to TensorFlow's xla_sharding.split.
func OpSplit(shape []int, dim, count int) (OpSharding, error) {
	index := dim
	if index < 0 {
		index += len(shape)
	}
	if index < 0 || index >= len(shape) {
		return OpSharding{}, invalidError("split", fmt.Sprintf("the dimension must be less than the rank, %d", len(shape)),
			"no dimension %d in the shape %v", dim, shape)
	}
	if count < 1 {
		return OpSharding{}, invalidError("split", "the number of devices must be at least 1", "%d devices", count)
	}
	if size := shape[index]; size != UnknownSize && size < count {
		return OpSharding{}, invalidError("split", "split a larger dimension, or use fewer devices",
			"dimension %d of the shape %v is smaller than the number of devices, %d", dim, shape, count)
	}
	dims := slices.Repeat([]int{1}, len(shape))
	dims[index] = count
	op, err := OpTile(dims, nil)
	if err != nil {
		return OpSharding{}, err
	}
	return op.WithDeviceList(), nil
}

// OpMeshSplit returns the sharding that splits a tensor over an array of devices. Tensor dimension
// i is split over array dimension mapping[i], or not split if mapping[i] is negative. The array has
// the dimensions dims and lists its devices in row-major order; nil devices means 0, 1, 2 and so
// on. The array dimensions in manual become manual subgroups. The tensor is replicated over all
// other array dimensions. It corresponds to TensorFlow's xla_sharding.mesh_split.
func OpMeshSplit(dims, devices, mapping, manual []int) (OpSharding, error) {
	size, err := tileCount("mesh dimensions", dims)
	if err != nil {
		return OpSharding{}, err
	}
	var tile, order []int
	add := func(d int) error {
		if d >= len(dims) || d < 0 || slices.Contains(order, d) {
			return invalidError("mesh split", fmt.Sprintf("use each of 0 to %d once, and -1 for a dimension that is not split",
				len(dims)-1),
				"mesh dimension %d is not in %v, or is used twice", d, dims)
		}
		order = append(order, d)
		tile = append(tile, dims[d])
		return nil
	}
	for _, d := range mapping {
		if d < 0 {
			tile = append(tile, 1)
		} else if err := add(d); err != nil {
			return OpSharding{}, err
		}
	}
	var subgroups []Kind
	for _, d := range manual {
		if err := add(d); err != nil {
			return OpSharding{}, err
		}
		subgroups = append(subgroups, KindManual)
	}
	if used := len(order); used < len(dims) {
		copies := 1
		for d, n := range dims {
			if !slices.Contains(order[:used], d) {
				order = append(order, d)
				copies *= n
			}
		}
		tile = append(tile, copies)
		subgroups = append(subgroups, KindReplicated)
	}
	if len(tile) == 0 {
		return OpReplicated(), nil
	}
	assigned := deviceTiles{reshape: dims, perm: order}.deviceList()
	if devices != nil {
		if len(devices) != size {
			return OpSharding{}, invalidError("mesh split", fmt.Sprintf("list %d devices", size),
				"%d devices for mesh dimensions %v", len(devices), dims)
		}
		for i, k := range assigned {
			assigned[i] = devices[k]
		}
	}
	return OpSubgroupTile(tile, assigned, subgroups...)
}
