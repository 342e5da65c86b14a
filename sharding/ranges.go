package sharding

import (
	"fmt"
	"math"
	"strconv"
)

// Range is the half-open interval of indices [Start, Stop) in one dimension.
type Range struct {
	Start, Stop int
}

// Len returns the number of indices.
func (r Range) Len() int { return r.Stop - r.Start }

// String returns the range as text, such as "0:4".
func (r Range) String() string { return strconv.Itoa(r.Start) + ":" + strconv.Itoa(r.Stop) }

// ShardShape returns the shape of the shard that each device holds of a tensor of the given shape.
// All shards have the same shape; it is an error if the axes of the spec do not divide the shape
// (see [Spec.Validate]). An open dimension is split only by the axes that the spec names.
func ShardShape(mesh Mesh, spec Spec, shape []int) ([]int, error) {
	if err := spec.Validate(mesh, shape); err != nil {
		return nil, err
	}
	local := make([]int, len(shape))
	for i, size := range shape {
		local[i] = size / numShards(mesh, spec.dims[i])
	}
	return local, nil
}

// numShards returns the number of shards of a tensor dimension. The axes of dim must exist in mesh.
func numShards(mesh Mesh, dim Dim) int {
	n := 1
	for _, name := range dim.Axes {
		size, _ := mesh.AxisSize(name)
		n *= size
	}
	return n
}

// shardIndex returns the index of the shard that the device at coords holds in a dimension. The
// first axis is the major axis.
func shardIndex(mesh Mesh, dim Dim, coords []int) int {
	index := 0
	for _, name := range dim.Axes {
		i := mesh.axisIndex(name)
		index = index*mesh.axes[i].Size + coords[i]
	}
	return index
}

// IndexRanges returns the range of indices that a device of the mesh holds in each dimension of a
// tensor of the given shape. It is an error if the spec does not fit the mesh and the shape, or if
// the mesh does not have the device.
func IndexRanges(mesh Mesh, spec Spec, shape []int, device int) ([]Range, error) {
	local, err := ShardShape(mesh, spec, shape)
	if err != nil {
		return nil, err
	}
	coords := mesh.Coordinates(device)
	if coords == nil {
		return nil, invalidError("index ranges", fmt.Sprintf("use a device from 0 to %d", mesh.Size()-1),
			"no device %d in %v", device, mesh)
	}
	ranges := make([]Range, len(shape))
	for i, size := range local {
		start := shardIndex(mesh, spec.dims[i], coords) * size
		ranges[i] = Range{start, start + size}
	}
	return ranges, nil
}

// ReplicationFactor returns the number of devices that hold each element of a tensor: the product
// of the sizes of the axes that split no dimension.
func ReplicationFactor(mesh Mesh, spec Spec) (int, error) {
	if err := spec.validateAxes(mesh); err != nil {
		return 0, err
	}
	n := mesh.Size()
	for _, dim := range spec.dims {
		n /= numShards(mesh, dim)
	}
	return n, nil
}

// BytesPerDevice returns the number of bytes of a tensor that each device holds. The size of an
// element is elementBytes.
func BytesPerDevice(mesh Mesh, spec Spec, shape []int, elementBytes int) (int64, error) {
	local, err := ShardShape(mesh, spec, shape)
	if err != nil {
		return 0, err
	}
	if elementBytes < 1 {
		return 0, invalidError("count bytes", "pass the size of the element type, at least 1", "%d bytes per element",
			elementBytes)
	}
	total := int64(elementBytes)
	for _, size := range local {
		if size == 0 {
			return 0, nil
		}
		if total > math.MaxInt64/int64(size) {
			return 0, invalidError("count bytes", "use a smaller shape", "the size of a shard of shape %v overflows int64",
				local)
		}
		total *= int64(size)
	}
	return total, nil
}
