package global

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// layout says which part of a tensor each device of the mesh holds, and moves parts between a
// row-major tensor and a row-major part. It is a value.
type layout struct {
	shape   []int // of the tensor
	shard   []int // of a part
	element int   // bytes
	// spec is what the layout was made from, nil if a partitioner chose it.
	spec  *sharding.Spec
	bytes int // of a part
	// starts are each device's first index in every dimension, and first is, for each device, the
	// first one that holds the same part. Both are nil for a tensor that each device holds whole.
	starts [][]int
	first  []int
	key    string // layouts of one shape are the same if their keys are
}

// newLayout returns the layout of a tensor whose elements take so many bytes.
func newLayout(mesh sharding.Mesh, spec sharding.Spec, shape []int, element int) (*layout, error) {
	if err := spec.Validate(mesh, shape); err != nil {
		return nil, err
	}
	l, err := layoutOf(mesh.Size(), shape, element, func(device int) ([]sharding.Range, error) {
		return sharding.IndexRanges(mesh, spec, shape, device)
	})
	if err == nil {
		l.spec = &spec
	}
	return l, err
}

// layoutOf returns the layout in which each of so many devices holds the given ranges of indices.
func layoutOf(devices int, shape []int, element int, ranges func(device int) ([]sharding.Range, error)) (*layout, error) {
	l := &layout{shape: slices.Clone(shape), element: element}
	for d := range devices {
		held, err := ranges(d)
		if err != nil {
			return nil, err
		}
		start, sizes := make([]int, len(held)), make([]int, len(held))
		for i, r := range held {
			start[i], sizes[i] = r.Start, r.Len()
		}
		if d == 0 {
			l.shard = sizes
		} else if !slices.Equal(l.shard, sizes) {
			return nil, &errkind.Fault{Op: "global: layout", Reason: fmt.Sprintf("devices 0 and %d hold parts %v and %v of %v", d, l.shard, sizes, shape),
				Class: errkind.NotImplementedError}
		}
		l.starts = append(l.starts, start)
		l.first = append(l.first, slices.IndexFunc(l.starts, func(other []int) bool { return slices.Equal(other, start) }))
	}
	l.bytes = element * size(l.shard)
	if slices.Equal(l.shard, l.shape) {
		l.starts, l.first = nil, nil
		return l, nil
	}
	l.key = fmt.Sprint(l.shard, l.starts)
	return l, nil
}

// whole reports whether each device holds all of the tensor.
func (l *layout) whole() bool { return l.starts == nil }

// same reports whether both layouts, of tensors of one shape, put the same parts on the devices.
func (l *layout) same(other *layout) bool { return l == other || l.key == other.key }

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// contiguous returns where in the tensor a device's part is, if it is in one piece.
func (l *layout) contiguous(device int) (offset int, ok bool) {
	if l.whole() {
		return 0, true
	}
	cut := 0 // the last dimension that is cut
	for d := range l.shape {
		if l.shard[d] != l.shape[d] {
			cut = d
		}
	}
	for d := range cut {
		if l.shard[d] != 1 {
			return 0, false
		}
	}
	for d := range l.shape {
		offset = offset*l.shape[d] + l.starts[device][d]
	}
	return offset * l.element, true
}

// part returns a device's part of a tensor: a view of the tensor where the part is in one piece,
// otherwise a copy.
func (l *layout) part(tensor []byte, device int) []byte {
	if offset, ok := l.contiguous(device); ok {
		return tensor[offset : offset+l.bytes]
	}
	part := make([]byte, l.bytes)
	l.each(device, func(inTensor, inPart, n int) { copy(part[inPart:inPart+n], tensor[inTensor:inTensor+n]) })
	return part
}

// put writes a device's part into a tensor.
func (l *layout) put(tensor, part []byte, device int) {
	l.each(device, func(inTensor, inPart, n int) { copy(tensor[inTensor:inTensor+n], part[inPart:inPart+n]) })
}

// each walks the contiguous runs of a part: their byte offsets in the tensor and in the part, and
// their length.
func (l *layout) each(device int, visit func(inTensor, inPart, n int)) {
	if l.bytes == 0 {
		return
	}
	rank := len(l.shape)
	start, run := l.starts[device], l.element*l.shard[rank-1]
	index := make([]int, rank)
	for inPart := 0; inPart < l.bytes; inPart += run {
		inTensor := 0
		for d := range rank {
			inTensor = inTensor*l.shape[d] + start[d] + index[d]
		}
		visit(l.element*inTensor, inPart, run)
		for d := rank - 2; d >= 0; d-- {
			if index[d]++; index[d] < l.shard[d] {
				break
			}
			index[d] = 0
		}
	}
}
