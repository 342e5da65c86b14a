package strategy

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/logical"
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
	starts     [][]int
	whole      bool // each logical device holds all
	bytes      int  // of a replica's tensor
	shardBytes int
}

func (s *TPUStrategy) layout(dtype dtypes.DType, shape []int, a logical.Annotation, perReplica bool) (layout, error) {
	l := layout{dtype: dtype, shape: shape}
	var err error
	if l.wire, err = wire.Of(dtype); err != nil {
		return l, err
	}
	if err := a.Validate("", shape, s.logicalDevices); err != nil {
		return l, err
	}
	element := l.wire.HostBytes()
	l.bytes = element * size(shape)
	if l.whole = a.Kind() != logical.KindSplit || s.logicalDevices == 1; l.whole {
		l.shard, l.shardBytes = shape, l.bytes
		l.buffer = l.shard
		if perReplica && len(shape) == 0 {
			l.buffer = oneElement
		}
		return l, nil
	}
	factors, err := logical.Factorize(s.logicalDevices, a)
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

// part returns logical device p's part of a replica's tensor: a view of it where the part is
// contiguous, otherwise a copy into scratch.
func (l *layout) part(tensor []byte, p int, scratch *[]byte) []byte {
	if l.whole {
		return tensor
	}
	if len(*scratch) < l.shardBytes {
		*scratch = make([]byte, l.shardBytes)
	}
	part := (*scratch)[:l.shardBytes]
	l.each(p, func(inTensor, inPart, n int) { copy(part[inPart:inPart+n], tensor[inTensor:inTensor+n]) })
	return part
}

// put writes logical device p's part into a replica's tensor.
func (l *layout) put(tensor, part []byte, p int) {
	if l.whole {
		copy(tensor, part)
		return
	}
	l.each(p, func(inTensor, inPart, n int) { copy(tensor[inTensor:inTensor+n], part[inPart:inPart+n]) })
}

// each walks the contiguous runs of a part: their byte offsets in the tensor and in the part, and
// their length.
func (l *layout) each(p int, visit func(inTensor, inPart, n int)) {
	rank := len(l.shape)
	run := l.wire.HostBytes() * l.shard[rank-1]
	if run == 0 || l.shardBytes == 0 {
		return
	}
	index := make([]int, rank)
	for at := 0; at < l.shardBytes; at += run {
		offset := 0
		for d := range rank {
			offset = offset*l.shape[d] + l.starts[p][d] + index[d]
		}
		visit(offset*l.wire.HostBytes(), at, run)
		for d := rank - 2; d >= 0; d-- {
			if index[d]++; index[d] < l.shard[d] {
				break
			}
			index[d] = 0
		}
	}
}
