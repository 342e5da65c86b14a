package engine

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Layout describes the shard of a tensor on each device, and copies between a row-major tensor and
// a row-major shard. The devices are in groups of equal size, in partition order: the logical
// devices of a replica, or all devices. Every group has the same shards, unless
// [Layout.SplitOverGroups] splits the tensor over the groups. A Layout is an immutable value.
type Layout struct {
	// Type is the dtype of the elements.
	Type pjrt.DType
	// Shape is the shape of the tensor. Shard is the shape of a device's shard with its padding.
	// Buffer is the shape of the shard's buffer: Shard, unless the program expects another shape.
	Shape, Shard, Buffer []int
	// Bytes is the size of the tensor in host memory. ShardBytes is the size of a shard.
	Bytes, ShardBytes int
	// Spec is the sharding that the layout was created from, or nil if a partitioner chose it.
	Spec *sharding.Spec

	group           int     // devices per group
	starts          [][]int // first index of each device of a group in each dimension; nil if replicated
	first           []int   // for each device of a group, the first one with the same shard
	splitOverGroups bool    // whether the groups have different shards
	groupDim        int     // the dimension that is split over the groups
}

// NewLayout returns the layout of a tensor that every group of devices, arranged as a mesh, shards
// by spec. Its errors are errors of package sharding.
func NewLayout(t pjrt.DType, shape []int, group sharding.Mesh, spec sharding.Spec) (*Layout, error) {
	if err := spec.Validate(group, shape); err != nil {
		return nil, err
	}
	l, err := NewLayoutFromRanges(t, shape, group.Size(), func(device int) ([]sharding.Range, error) {
		return sharding.IndexRanges(group, spec, shape, device)
	})
	if err == nil {
		l.Spec = &spec
	}
	return l, err
}

// NewReplicatedLayout returns the layout of a tensor that is replicated on all devices.
func NewReplicatedLayout(t pjrt.DType, shape []int, group int) *Layout {
	shape = slices.Clone(shape)
	bytes := t.HostBytes() * numElements(shape)
	return &Layout{Type: t, Shape: shape, Shard: shape, Buffer: shape, Bytes: bytes, ShardBytes: bytes, group: group}
}

// NewLayoutFromRanges returns the layout in which each device of a group has the given index
// ranges, one for each dimension. It returns an error if the shards have different sizes.
func NewLayoutFromRanges(t pjrt.DType, shape []int, group int, ranges func(device int) ([]sharding.Range,
	error)) (*Layout, error) {
	l := NewReplicatedLayout(t, shape, group)
	starts, first := make([][]int, group), make([]int, group)
	for d := range group {
		held, err := ranges(d)
		if err != nil {
			return nil, err
		}
		start, sizes := make([]int, len(held)), make([]int, len(held))
		for i, r := range held {
			start[i], sizes[i] = r.Start, r.Len()
		}
		if d == 0 {
			l.Shard = sizes
		} else if !slices.Equal(l.Shard, sizes) {
			return nil, &errkind.Fault{Op: "layout", Reason: fmt.Sprintf("devices 0 and %d hold parts %v and %v of %v", d,
				l.Shard, sizes, shape),
				Class: errkind.NotImplementedError}
		}
		starts[d] = start
		first[d] = slices.IndexFunc(starts, func(other []int) bool { return slices.Equal(other, start) })
	}
	l.Buffer, l.ShardBytes = l.Shard, t.HostBytes()*numElements(l.Shard)
	if !slices.Equal(l.Shard, l.Shape) {
		l.starts, l.first = starts, first
	}
	return l, nil
}

// SplitOverGroups returns the layout whose dimension dim is also split over the groups. The
// dimension must not be split within a group. If the number of groups does not divide the
// dimension, the last shards are padded or contain only padding.
func (l *Layout) SplitOverGroups(dim, groups int) *Layout {
	c := *l
	c.splitOverGroups, c.groupDim = true, dim
	c.Shard = slices.Clone(l.Shard)
	c.Shard[dim] = (l.Shape[dim] + groups - 1) / groups
	c.Buffer, c.ShardBytes = c.Shard, l.Type.HostBytes()*numElements(c.Shard)
	if c.starts == nil {
		c.starts, c.first = make([][]int, l.group), make([]int, l.group)
		for d := range c.starts {
			c.starts[d] = make([]int, len(l.Shape))
		}
	}
	return &c
}

// AsVector returns the layout of a scalar for programs that expect a buffer of shape [1].
func (l *Layout) AsVector() *Layout {
	c := *l
	c.Buffer = []int{1}
	return &c
}

func numElements(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// IsReplicated reports whether each device has the whole tensor.
func (l *Layout) IsReplicated() bool { return l.starts == nil }

// IsSplitWithinGroup reports whether the devices of a group have different shards.
func (l *Layout) IsSplitWithinGroup() bool {
	return slices.ContainsFunc(l.first, func(first int) bool { return first != 0 })
}

// IsSplitOverGroups reports whether the groups have different shards.
func (l *Layout) IsSplitOverGroups() bool { return l.splitOverGroups }

// HasSameShards reports whether l and o place the same shards of a tensor on all devices. The
// shapes of the tensors must be equal.
func (l *Layout) HasSameShards(o *Layout) bool {
	return l == o || l.splitOverGroups == o.splitOverGroups && l.groupDim == o.groupDim && slices.Equal(l.Shard,
		o.Shard) &&
		slices.EqualFunc(l.starts, o.starts, slices.Equal[[]int])
}

// FirstPartition returns the first partition in the group of the given partition that has the same
// shard.
func (l *Layout) FirstPartition(partition int) int {
	if l.first == nil {
		return partition - partition%l.group
	}
	return partition - partition%l.group + l.first[partition%l.group]
}

// ShardBounds returns the start index and the size of a partition's shard, without padding.
func (l *Layout) ShardBounds(partition int) (start, sizes []int) {
	start, sizes = make([]int, len(l.Shard)), make([]int, len(l.Shard)) // empty for a scalar, not nil
	copy(sizes, l.Shard)
	if l.starts != nil {
		copy(start, l.starts[partition%l.group])
	}
	if l.splitOverGroups {
		start[l.groupDim] = min(partition/l.group*l.Shard[l.groupDim], l.Shape[l.groupDim])
		sizes[l.groupDim] = min(l.Shard[l.groupDim], l.Shape[l.groupDim]-start[l.groupDim])
	}
	return start, sizes
}

// ContiguousOffset returns the byte offset of a partition's shard in the row-major tensor. ok is
// false if the shard is not contiguous or has padding.
func (l *Layout) ContiguousOffset(partition int) (offset int, ok bool) {
	if l.starts == nil {
		return 0, true
	}
	cut := 0 // the last dimension that is split
	for d := range l.Shape {
		if l.Shard[d] != l.Shape[d] {
			cut = d
		}
	}
	for d := range cut {
		if l.Shard[d] != 1 {
			return 0, false
		}
	}
	start := l.starts[partition%l.group]
	for d := range l.Shape {
		at := start[d]
		if l.splitOverGroups && d == l.groupDim {
			if at = partition / l.group * l.Shard[d]; at+l.Shard[d] > l.Shape[d] {
				return 0, false
			}
		}
		offset = offset*l.Shape[d] + at
	}
	return offset * l.Type.HostBytes(), true
}

// ExtractShard returns a partition's shard of a tensor. The result is a slice of tensor if the
// shard is contiguous. Otherwise it is a copy in scratch, which ExtractShard enlarges if necessary.
func (l *Layout) ExtractShard(tensor []byte, partition int, scratch *[]byte) []byte {
	if offset, ok := l.ContiguousOffset(partition); ok {
		return tensor[offset : offset+l.ShardBytes]
	}
	if len(*scratch) < l.ShardBytes {
		*scratch = make([]byte, l.ShardBytes)
	}
	part := (*scratch)[:l.ShardBytes]
	if l.splitOverGroups {
		clear(part) // the padding
	}
	start, sizes := l.ShardBounds(partition)
	copyBox(l.Type.HostBytes(), sizes, tensor, l.Shape, start, part, l.Shard, nil)
	return part
}

// InsertShard copies a partition's shard into a tensor.
func (l *Layout) InsertShard(tensor, part []byte, partition int) {
	start, sizes := l.ShardBounds(partition)
	copyBox(l.Type.HostBytes(), sizes, part, l.Shard, nil, tensor, l.Shape, start)
}

// PadShard copies a partition's shard from box, where it has no padding, to part, where it has
// padding. It does not write the padding.
func (l *Layout) PadShard(part, box []byte, partition int) {
	_, sizes := l.ShardBounds(partition)
	CopyBlock(l.Type.HostBytes(), sizes, box, sizes, part, l.Shard)
}

// UnpadShard copies a partition's shard from part, where it has padding, to box, where it has no
// padding.
func (l *Layout) UnpadShard(box, part []byte, partition int) {
	_, sizes := l.ShardBounds(partition)
	CopyBlock(l.Type.HostBytes(), sizes, part, l.Shard, box, sizes)
}

// UnpaddedBytes returns the size in bytes of a partition's shard without padding.
func (l *Layout) UnpaddedBytes(partition int) int {
	_, sizes := l.ShardBounds(partition)
	return l.Type.HostBytes() * numElements(sizes)
}

// PadsAtEnd reports whether all padding of a shard, if any, is contiguous at its end.
func (l *Layout) PadsAtEnd() bool { return !l.splitOverGroups || l.groupDim == 0 }

// CopyBlock copies a block of elements from one row-major tensor to another. The block starts at
// index 0 and has size[i] elements in each dimension i. element is the size of an element in bytes.
func CopyBlock(element int, size []int, src []byte, srcDims []int, dst []byte, dstDims []int) {
	copyBox(element, size, src, srcDims, nil, dst, dstDims, nil)
}

// copyBox copies a block of sizes[i] elements in each dimension i between row-major tensors.
// fromStart and toStart are the indices at which the block starts; nil means index 0.
func copyBox(element int, sizes []int, from []byte, fromDims, fromStart []int, to []byte, toDims, toStart []int) {
	rank := len(sizes)
	if rank == 0 {
		copy(to[:element], from[:element])
		return
	}
	run := element * sizes[rank-1]
	if run == 0 || numElements(sizes) == 0 {
		return
	}
	from, to = from[element*flatIndex(fromStart, fromDims):], to[element*flatIndex(toStart, toDims):]
	index := make([]int, rank)
	for range numElements(sizes[:rank-1]) {
		copy(to[element*flatIndex(index, toDims):][:run], from[element*flatIndex(index, fromDims):][:run])
		for d := rank - 2; d >= 0; d-- {
			if index[d]++; index[d] < sizes[d] {
				break
			}
			index[d] = 0
		}
	}
}

// flatIndex returns the row-major offset of an index.
func flatIndex(index, dims []int) (n int) {
	for d, i := range index {
		n = n*dims[d] + i
	}
	return n
}
