package strategy

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy/internal/wire"
)

// layout says which part of a replica's tensor each logical device holds, and moves parts between a
// row-major tensor and a row-major part. It is a value.
type layout struct {
	dtype dtypes.DType
	wire  pjrt.DType
	shape []int // of a replica's tensor
	shard []int // of one logical device's part
	// buffer is the part's shape as the program takes it: shard, but one element for the scalar of
	// one replica.
	buffer []int
	// starts are each logical device's first index in every dimension.
	starts [][]int
	// first is, for each logical device, the first one that holds the same part: several do where
	// an axis splits nothing. It is nil for a tensor that each device holds whole.
	first []int
	whole bool // each logical device holds all
	split bool // the logical devices of a replica hold different parts
	// over says of a tensor of all replicas along which dimension each holds a part of it, of which
	// the parts of the logical devices are then made. shape and bytes are the whole tensor's.
	over       module.Over
	bytes      int // of a replica's tensor
	shardBytes int
}

// layoutOver is the layout of a tensor that may be in parts over the replicas.
func (s *TPUStrategy) layoutOver(dtype dtypes.DType, shape []int, a logical.Annotation, perReplica bool, over module.Over) (layout, error) {
	l, err := s.layout(dtype, shape, a, perReplica)
	if err != nil || !over.Is() {
		return l, err
	}
	if l.whole {
		l.whole = false
		for range s.logicalDevices {
			l.starts = append(l.starts, make([]int, len(shape)))
		}
	}
	l.over = over
	l.shard = slices.Clone(l.shard)
	l.shard[over.Dim] = over.Part(s.replicas)
	l.buffer, l.shardBytes = l.shard, l.wire.HostBytes()*size(l.shard)
	return l, nil
}

func (s *TPUStrategy) layout(dtype dtypes.DType, shape []int, a logical.Annotation, perReplica bool) (layout, error) {
	l := layout{dtype: dtype, shape: shape}
	var err error
	if l.wire, err = wire.Of(dtype); err != nil {
		return l, err
	}
	if err := a.ValidateOn(s.axes, "", shape); err != nil {
		return l, err
	}
	element := l.wire.HostBytes()
	l.bytes = element * size(shape)
	if l.whole = !a.Divides(s.axes); l.whole {
		l.shard, l.shardBytes = shape, l.bytes
		l.buffer = l.shard
		if perReplica && len(shape) == 0 {
			l.buffer = oneElement
		}
		return l, nil
	}
	l.split = true
	factors, err := logical.Cut(s.axes, a)
	if err != nil {
		return l, err
	}
	mesh, err := sharding.NewMesh(factors.Axes()...)
	if err != nil {
		return l, err
	}
	spec := a.Spec(len(shape), factors)
	if l.shard, err = sharding.ShardShape(mesh, spec, shape); err != nil {
		return l, err
	}
	l.buffer = l.shard
	for p := range s.logicalDevices {
		ranges, err := sharding.IndexRanges(mesh, spec, shape, p)
		if err != nil {
			return l, err
		}
		start := make([]int, len(ranges))
		for i, r := range ranges {
			start[i] = r.Start
		}
		l.starts = append(l.starts, start)
		l.first = append(l.first, slices.IndexFunc(l.starts, func(other []int) bool { return slices.Equal(other, start) }))
	}
	l.shardBytes = element * size(l.shard)
	return l, nil
}

// oneElement are the dimensions of a buffer for the scalar of one replica.
var oneElement = []int{1}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// firstOf returns the first logical device of a replica that holds the same part as logical device
// p does.
func (l *layout) firstOf(p int) int {
	if l.first == nil {
		return 0
	}
	return l.first[p]
}

// part returns the part of a tensor that logical device p of replica r holds: a view of the tensor
// where the part is contiguous, otherwise a copy into scratch.
func (l *layout) part(tensor []byte, r, p int, scratch *[]byte) []byte {
	if l.whole {
		return tensor
	}
	if len(*scratch) < l.shardBytes {
		*scratch = make([]byte, l.shardBytes)
	}
	part := (*scratch)[:l.shardBytes]
	if l.over.Is() {
		clear(part) // the padding
	}
	l.each(r, p, func(inTensor, inPart, n int) { copy(part[inPart:inPart+n], tensor[inTensor:inTensor+n]) })
	return part
}

// put writes the part of logical device p of replica r into a tensor.
func (l *layout) put(tensor, part []byte, r, p int) {
	if l.whole {
		copy(tensor, part)
		return
	}
	l.each(r, p, func(inTensor, inPart, n int) { copy(tensor[inTensor:inTensor+n], part[inPart:inPart+n]) })
}

// held returns the first index of what logical device p of replica r holds, and its sizes without
// padding.
func (l *layout) held(r, p int) (start, sizes []int) {
	start, sizes = make([]int, len(l.shard)), make([]int, len(l.shard)) // a scalar's are empty, not nil
	copy(sizes, l.shard)
	if !l.whole {
		copy(start, l.starts[p])
	}
	if d := l.over.Dim; l.over.Is() {
		start[d] = min(r*l.shard[d], l.over.Size)
		sizes[d] = min(l.shard[d], l.over.Size-start[d])
	}
	return start, sizes
}

// each walks the contiguous runs of a part: their byte offsets in the tensor and in the part, and
// their length.
func (l *layout) each(r, p int, visit func(inTensor, inPart, n int)) {
	rank, element := len(l.shape), l.wire.HostBytes()
	start, sizes := l.held(r, p)
	run := element * sizes[rank-1]
	if run == 0 || size(sizes) == 0 {
		return
	}
	index := make([]int, rank)
	for range size(sizes[:rank-1]) {
		inTensor, inPart := 0, 0
		for d := range rank {
			inTensor = inTensor*l.shape[d] + start[d] + index[d]
			inPart = inPart*l.shard[d] + index[d]
		}
		visit(element*inTensor, element*inPart, run)
		for d := rank - 2; d >= 0; d-- {
			if index[d]++; index[d] < sizes[d] {
				break
			}
			index[d] = 0
		}
	}
}
