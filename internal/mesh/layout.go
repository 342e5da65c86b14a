package mesh

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Layout says which part of a tensor each device holds, and moves parts between a row-major tensor
// and a row-major part. The devices are in groups of one size, partition by partition: a replica's
// logical devices, or all devices. Every group holds the tensor alike, unless [Layout.CutOver] gives
// each a part of it. A Layout is a value: nobody changes it.
type Layout struct {
	// Type is that of the elements.
	Type pjrt.DType
	// Shape are the dimensions of the tensor, Shard those of a device's part with its padding, and
	// Buffer those of the part's buffer: Shard, unless a program takes the part in another form.
	Shape, Shard, Buffer []int
	// Bytes is what the tensor takes in host memory, and PartBytes what a part takes.
	Bytes, PartBytes int
	// Spec is what the layout was made from, nil if a partitioner chose it.
	Spec *sharding.Spec

	group  int     // devices in a group
	starts [][]int // the first index of a group's devices in each dimension; nil if each holds all
	first  []int   // for a group's devices, the first one that holds the same part
	cut    bool    // the groups hold parts,
	dim    int     // of this dimension
}

// New returns the layout of a tensor that every group of devices, laid out as a mesh, splits by a
// spec. Errors are those of package sharding.
func New(t pjrt.DType, shape []int, group sharding.Mesh, spec sharding.Spec) (*Layout, error) {
	if err := spec.Validate(group, shape); err != nil {
		return nil, err
	}
	l, err := Of(t, shape, group.Size(), func(device int) ([]sharding.Range, error) {
		return sharding.IndexRanges(group, spec, shape, device)
	})
	if err == nil {
		l.Spec = &spec
	}
	return l, err
}

// Whole returns the layout of a tensor that each device holds all of.
func Whole(t pjrt.DType, shape []int, group int) *Layout {
	shape = slices.Clone(shape)
	bytes := t.HostBytes() * size(shape)
	return &Layout{Type: t, Shape: shape, Shard: shape, Buffer: shape, Bytes: bytes, PartBytes: bytes, group: group}
}

// Of returns the layout in which each device of a group holds the given ranges of indices. Devices
// that hold parts of different sizes are an error.
func Of(t pjrt.DType, shape []int, group int, ranges func(device int) ([]sharding.Range, error)) (*Layout, error) {
	l := Whole(t, shape, group)
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
			return nil, &errkind.Fault{Op: "layout", Reason: fmt.Sprintf("devices 0 and %d hold parts %v and %v of %v", d, l.Shard, sizes, shape),
				Class: errkind.NotImplementedError}
		}
		starts[d] = start
		first[d] = slices.IndexFunc(starts, func(other []int) bool { return slices.Equal(other, start) })
	}
	l.Buffer, l.PartBytes = l.Shard, t.HostBytes()*size(l.Shard)
	if !slices.Equal(l.Shard, l.Shape) {
		l.starts, l.first = starts, first
	}
	return l, nil
}

// CutOver returns the layout of a tensor of which each of so many groups holds a part along a
// dimension that no device of a group splits. Where the groups do not divide the dimension, parts
// are padded at their end, and the last ones may be nothing but padding.
func (l *Layout) CutOver(dim, groups int) *Layout {
	c := *l
	c.cut, c.dim = true, dim
	c.Shard = slices.Clone(l.Shard)
	c.Shard[dim] = (l.Shape[dim] + groups - 1) / groups
	c.Buffer, c.PartBytes = c.Shard, l.Type.HostBytes()*size(c.Shard)
	if c.starts == nil {
		c.starts, c.first = make([][]int, l.group), make([]int, l.group)
		for d := range c.starts {
			c.starts[d] = make([]int, len(l.Shape))
		}
	}
	return &c
}

// AsVector returns the layout of a scalar whose buffers have one dimension, of size 1.
func (l *Layout) AsVector() *Layout {
	c := *l
	c.Buffer = []int{1}
	return &c
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// IsWhole reports whether each device holds all of the tensor.
func (l *Layout) IsWhole() bool { return l.starts == nil }

// IsSplit reports whether the devices of a group hold different parts.
func (l *Layout) IsSplit() bool {
	return slices.ContainsFunc(l.first, func(first int) bool { return first != 0 })
}

// IsCut reports whether the groups hold different parts, which may be padded.
func (l *Layout) IsCut() bool { return l.cut }

// Same reports whether both layouts, of tensors of one shape, put the same parts on the devices.
func (l *Layout) Same(o *Layout) bool {
	return l == o || l.cut == o.cut && l.dim == o.dim && slices.Equal(l.Shard, o.Shard) && slices.EqualFunc(l.starts, o.starts, slices.Equal[[]int])
}

// First returns the first partition of a partition's group that holds the same part.
func (l *Layout) First(partition int) int {
	if l.first == nil {
		return partition - partition%l.group
	}
	return partition - partition%l.group + l.first[partition%l.group]
}

// At returns the first index of a partition's part in each dimension, and its sizes without padding.
func (l *Layout) At(partition int) (start, sizes []int) {
	start, sizes = make([]int, len(l.Shard)), make([]int, len(l.Shard)) // a scalar's are empty, not nil
	copy(sizes, l.Shard)
	if l.starts != nil {
		copy(start, l.starts[partition%l.group])
	}
	if l.cut {
		start[l.dim] = min(partition/l.group*l.Shard[l.dim], l.Shape[l.dim])
		sizes[l.dim] = min(l.Shard[l.dim], l.Shape[l.dim]-start[l.dim])
	}
	return start, sizes
}

// Span returns where a partition's part is in the tensor's bytes, if it is in one piece and without
// padding.
func (l *Layout) Span(partition int) (offset int, ok bool) {
	if l.starts == nil {
		return 0, true
	}
	cut := 0 // the last dimension that is cut
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
		if l.cut && d == l.dim {
			if at = partition / l.group * l.Shard[d]; at+l.Shard[d] > l.Shape[d] {
				return 0, false
			}
		}
		offset = offset*l.Shape[d] + at
	}
	return offset * l.Type.HostBytes(), true
}

// Part returns a partition's part of a tensor: a view of the tensor where the part is in one piece,
// otherwise a copy in scratch, which grows as it has to.
func (l *Layout) Part(tensor []byte, partition int, scratch *[]byte) []byte {
	if offset, ok := l.Span(partition); ok {
		return tensor[offset : offset+l.PartBytes]
	}
	if len(*scratch) < l.PartBytes {
		*scratch = make([]byte, l.PartBytes)
	}
	part := (*scratch)[:l.PartBytes]
	if l.cut {
		clear(part) // the padding
	}
	start, sizes := l.At(partition)
	move(l.Type.HostBytes(), sizes, tensor, l.Shape, start, part, l.Shard, nil)
	return part
}

// Put writes a partition's part into a tensor.
func (l *Layout) Put(tensor, part []byte, partition int) {
	start, sizes := l.At(partition)
	move(l.Type.HostBytes(), sizes, part, l.Shard, nil, tensor, l.Shape, start)
}

// Pad writes what a partition holds, without padding, into its part, whose padding it leaves as it is.
func (l *Layout) Pad(part, box []byte, partition int) {
	_, sizes := l.At(partition)
	CopyBlock(l.Type.HostBytes(), sizes, box, sizes, part, l.Shard)
}

// Unpad writes a partition's part into box without the padding.
func (l *Layout) Unpad(box, part []byte, partition int) {
	_, sizes := l.At(partition)
	CopyBlock(l.Type.HostBytes(), sizes, part, l.Shard, box, sizes)
}

// BoxBytes returns what a partition's part takes without padding.
func (l *Layout) BoxBytes(partition int) int {
	_, sizes := l.At(partition)
	return l.Type.HostBytes() * size(sizes)
}

// PadsAtEnd reports whether the padding of a part, if there is any, lies behind all that it holds.
func (l *Layout) PadsAtEnd() bool { return !l.cut || l.dim == 0 }

// CopyBlock copies a block of so many elements in each dimension, of so many bytes each, from the
// beginning of a row-major tensor to that of another.
func CopyBlock(element int, block []int, from []byte, fromDims []int, to []byte, toDims []int) {
	move(element, block, from, fromDims, nil, to, toDims, nil)
}

// move copies a box of so many elements in each dimension from one row-major tensor to another, run
// by run. The box begins in each at an index, nil for the first element.
func move(element int, sizes []int, from []byte, fromDims, fromStart []int, to []byte, toDims, toStart []int) {
	rank := len(sizes)
	if rank == 0 {
		copy(to[:element], from[:element])
		return
	}
	run := element * sizes[rank-1]
	if run == 0 || size(sizes) == 0 {
		return
	}
	from, to = from[element*flat(fromStart, fromDims):], to[element*flat(toStart, toDims):]
	index := make([]int, rank)
	for range size(sizes[:rank-1]) {
		copy(to[element*flat(index, toDims):][:run], from[element*flat(index, fromDims):][:run])
		for d := rank - 2; d >= 0; d-- {
			if index[d]++; index[d] < sizes[d] {
				break
			}
			index[d] = 0
		}
	}
}

// flat is the number of the element at an index in a row-major tensor.
func flat(index, dims []int) (n int) {
	for d, i := range index {
		n = n*dims[d] + i
	}
	return n
}
