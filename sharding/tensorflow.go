package sharding

import (
	"fmt"
	"slices"
)

// UnknownSize stands for the size of a tensor dimension that is not known yet, in the shapes that
// [SplitToLogicalDevices] and [OpSplit] take.
const UnknownSize = -1

// AssignToLogicalDevice returns the sharding of TPUStrategy's
// experimental_assign_to_logical_device: of a replica's count logical devices, only the device with
// the number logical holds the tensor.
func AssignToLogicalDevice(logical, count int) (OpSharding, error) {
	if logical < 0 || logical >= count {
		return OpSharding{}, wrong("assign", fmt.Sprintf("a replica has %d, numbered from 0", count), "no logical device %d", logical)
	}
	return OpMaximal(logical)
}

// ReplicateToLogicalDevices returns the sharding of TPUStrategy's
// experimental_replicate_to_logical_devices: every logical device of a replica holds the whole
// tensor.
func ReplicateToLogicalDevices() OpSharding { return OpReplicated() }

// SplitToLogicalDevices returns the sharding of TPUStrategy's
// experimental_split_to_logical_devices: dimension i of a tensor is cut into partitions[i] equal
// pieces, over all count logical devices.
//
// It checks in TensorFlow's order: the rank, that each partition divides its dimension (a dimension
// of [UnknownSize] is not checked, and every partition divides a dimension of size 0), and that the
// product of the partitions is count. It refuses a nil shape, which stands for an unknown rank; the
// shape of a scalar is []int{}. A dimension that its partition does not divide is a [*SpecError].
func SplitToLogicalDevices(shape, partitions []int, count int) (OpSharding, error) {
	if shape == nil {
		return OpSharding{}, wrong("split", "give its shape, []int{} for a scalar", "the tensor's rank is unknown")
	}
	if len(partitions) != len(shape) {
		return OpSharding{}, wrong("split", fmt.Sprintf("give one for each of its %d dimensions", len(shape)),
			"%d partitions %v for the shape %v", len(partitions), partitions, shape)
	}
	product := 1
	for i, n := range partitions {
		if n < 1 {
			return OpSharding{}, wrong("split", "write 1 to leave it whole", "dimension %d in %d pieces", i, n)
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
		return OpSharding{}, wrong("split", "give partitions whose product is that number",
			"the product of the partitions %v is not the number of logical devices, %d", partitions, count)
	}
	if len(shape) == 0 {
		return OpReplicated(), nil
	}
	op, err := OpTile(partitions, nil)
	return op.Explicit(), err
}

// OpSplit returns the sharding of xla_sharding.split: dimension dim of a tensor is cut over the
// devices 0 to count-1, unevenly if count does not divide it. A negative dim counts from the end.
// The dimension must have at least count elements, unless its size is [UnknownSize].
func OpSplit(shape []int, dim, count int) (OpSharding, error) {
	at := dim
	if at < 0 {
		at += len(shape)
	}
	if at < 0 || at >= len(shape) {
		return OpSharding{}, wrong("split", fmt.Sprintf("give a dimension below the rank, %d", len(shape)), "no dimension %d in the shape %v", dim, shape)
	}
	if count < 1 {
		return OpSharding{}, wrong("split", "give at least 1", "%d devices", count)
	}
	if size := shape[at]; size != UnknownSize && size < count {
		return OpSharding{}, wrong("split", "split a larger dimension, or over fewer devices",
			"dimension %d of the shape %v is smaller than the number of devices, %d", dim, shape, count)
	}
	dims := slices.Repeat([]int{1}, len(shape))
	dims[at] = count
	op, err := OpTile(dims, nil)
	if err != nil {
		return OpSharding{}, err
	}
	return op.Explicit(), nil
}

// OpMeshSplit returns the sharding of xla_sharding.mesh_split over an array of devices: tensor
// dimension i is split over array dimension mapping[i], and stays whole if mapping[i] is negative.
// The array has the dimensions dims and lists its devices row-major; nil devices stand for 0, 1, 2
// and so on. Along the array dimensions in manual the program itself says which device holds what.
// Along all other unused dimensions the devices hold copies.
func OpMeshSplit(dims, devices, mapping, manual []int) (OpSharding, error) {
	size, err := tileCount("mesh dimensions", dims)
	if err != nil {
		return OpSharding{}, err
	}
	var tile, order []int
	use := func(d int) error {
		if d >= len(dims) || d < 0 || slices.Contains(order, d) {
			return wrong("mesh split", fmt.Sprintf("use each of 0 to %d once, and -1 for a dimension that stays whole", len(dims)-1),
				"no mesh dimension %d in %v, or it is used twice", d, dims)
		}
		order = append(order, d)
		tile = append(tile, dims[d])
		return nil
	}
	for _, d := range mapping {
		if d < 0 {
			tile = append(tile, 1)
		} else if err := use(d); err != nil {
			return OpSharding{}, err
		}
	}
	var subgroups []Kind
	for _, d := range manual {
		if err := use(d); err != nil {
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
	placed := tiles{reshape: dims, perm: order}.expand()
	if devices != nil {
		if len(devices) != size {
			return OpSharding{}, wrong("mesh split", fmt.Sprintf("give %d", size), "%d devices for mesh dimensions %v", len(devices), dims)
		}
		for i, k := range placed {
			placed[i] = devices[k]
		}
	}
	return OpSubgroupTile(tile, placed, subgroups...)
}
