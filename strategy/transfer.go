package strategy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"tpustrategy/logical"
	"tpustrategy/pjrt"
	"tpustrategy/sharding"
)

// layout says which part of a replica's tensor each logical device holds, and
// moves parts between a row-major tensor and a row-major part. It is a value.
type layout struct {
	dtype dtypes.DType
	wire  pjrt.DType
	shape []int // of a replica's tensor
	shard []int // of one logical device's part
	// buffer is the part's shape as the program takes it: shard, but one element
	// for the scalar of one replica.
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
	if l.wire, err = wireType(dtype); err != nil {
		return l, err
	}
	if err := a.Validate("", shape, s.perReplica); err != nil {
		return l, err
	}
	factors, err := logical.Factorize(s.perReplica, a)
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
	if perReplica && len(shape) == 0 {
		l.buffer = []int{1}
	}
	for p := range s.perReplica {
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
	l.whole = a.Kind() != logical.KindSplit || s.perReplica == 1
	element := l.wire.HostBytes()
	l.bytes, l.shardBytes = element*size(shape), element*size(l.shard)
	return l, nil
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// part returns logical device p's part of a replica's tensor: a view of it where
// the part is contiguous, otherwise a copy into scratch.
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

// each walks the contiguous runs of a part: their byte offsets in the tensor and
// in the part, and their length.
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

// tensorReader gives replica r's tensor, row-major, for the time of a call.
type tensorReader func(r int, use func(data []byte)) error

// upload copies the replicas' tensors to this process's devices, into buffers. A
// nil buffer is made, a closed one is used again. Replicas that have no device
// here are not read. After an error no buffer is live.
func (s *TPUStrategy) upload(ctx context.Context, l *layout, read tensorReader, buffers []*pjrt.Buffer) error {
	if s.slice != nil {
		return nil // there is nowhere to copy to
	}
	var scratch []byte
	for _, r := range s.hosts.replicas {
		var failed error
		err := read(r, func(data []byte) { failed = s.uploadReplica(ctx, l, r, data, &scratch, buffers) })
		if failed == nil {
			failed = err
		}
		if failed != nil {
			_ = closeAll(buffers)
			return failed
		}
	}
	return nil
}

// uploadBatch is upload of a batch, cut among the replicas along dimension 0.
func (s *TPUStrategy) uploadBatch(ctx context.Context, l *layout, batch []byte, local bool, buffers []*pjrt.Buffer) error {
	if s.slice != nil {
		return nil
	}
	var scratch []byte
	for _, r := range s.hosts.replicas {
		at := s.batchIndex(r, local)
		if err := s.uploadReplica(ctx, l, r, batch[at*l.bytes:(at+1)*l.bytes], &scratch, buffers); err != nil {
			_ = closeAll(buffers)
			return err
		}
	}
	return nil
}

// uploadReplica copies replica r's tensor to its devices of this process.
func (s *TPUStrategy) uploadReplica(ctx context.Context, l *layout, r int, data []byte, scratch *[]byte, buffers []*pjrt.Buffer) (err error) {
	if len(data) != l.bytes {
		return fmt.Errorf("strategy: replica %d has %d bytes for %s%v, which is %d", r, len(data), l.dtype, l.shape, l.bytes)
	}
	rt := s.sys.Runtime()
	for p := range s.perReplica {
		d := r*s.perReplica + p
		if !s.hosts.local[d] {
			continue
		}
		part := l.part(data, p, scratch)
		if buffers[d] == nil {
			buffers[d], err = rt.BufferFromHost(ctx, part, l.wire, l.buffer, s.devices[d])
		} else {
			err = rt.RefillFromHost(ctx, buffers[d], part, l.wire, l.buffer, s.devices[d])
		}
		if err != nil {
			return fmt.Errorf("strategy: copying to replica %d, logical device %d: %w", r, p, err)
		}
	}
	return nil
}

// download copies a replica's tensor to the host. One that is elsewhere is an
// error, unless it is the same as that of a replica which is here.
func (s *TPUStrategy) download(ctx context.Context, v *distributed, buffers []*pjrt.Buffer, replica int) (*tensors.Tensor, error) {
	if err := s.runnable("reading a value"); err != nil {
		return nil, err
	}
	l, err := s.layout(v.dtype, v.shape, v.annotation, v.perReplica)
	if err != nil {
		return nil, err
	}
	parts, err := s.sources(&l, v.perReplica, replica)
	if err != nil {
		return nil, err
	}
	tensor := tensors.FromShape(shapes.Make(v.dtype, v.shape...))
	var failed error
	err = tensor.MutableBytes(func(data []byte) {
		for _, from := range parts {
			bytes := data
			if !l.whole {
				bytes = make([]byte, l.shardBytes)
			}
			if err := buffers[from.partition].ToHost(ctx, bytes); err != nil {
				failed = closedMeanwhile(fmt.Errorf("strategy: reading replica %d, logical device %d: %w", from.partition/s.perReplica, from.logical, err))
				return
			}
			if !l.whole {
				l.put(data, bytes, from.logical)
			}
		}
	})
	if failed == nil && err != nil {
		failed = fmt.Errorf("strategy: %w", err)
	}
	if failed != nil {
		return nil, failed
	}
	return tensor, nil
}

// hostTensor makes a GoMLX tensor of what a caller gave.
func hostTensor(value any) (t *tensors.Tensor, err error) {
	if t, ok := value.(*tensors.Tensor); ok && t != nil {
		return t, t.CheckValid()
	} else if ok || value == nil {
		return nil, errors.New("no value")
	}
	// GoMLX panics for some types that are no tensors.
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("a %T is no tensor: %v", value, r)
		}
	}()
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Len() == 0 {
		if dtype := dtypes.FromGoType(v.Type().Elem()); dtype != dtypes.InvalidDType {
			return tensors.FromShape(shapes.Make(dtype, 0)), nil
		}
	}
	return tensors.FromAnyValue(value)
}

// Mirror copies a host value to every replica: a *tensors.Tensor, or what
// tensors.FromAnyValue takes (numbers and nested slices).
func (s *TPUStrategy) Mirror(ctx context.Context, value any, a logical.Annotation) (*Mirrored, error) {
	tensor, err := hostTensor(value)
	if err != nil {
		return nil, fmt.Errorf("strategy: mirror: %w", err)
	}
	v, err := s.place(ctx, false, tensor.DType(), tensor.Shape().Dimensions, a, func(_ int, use func([]byte)) error {
		return tensor.ConstBytes(use)
	})
	if err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}

// PerReplica copies a host value for each replica, in replica order. All have one
// shape and dtype.
func (s *TPUStrategy) PerReplica(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	if len(values) != s.replicas {
		return nil, fmt.Errorf("strategy: %d values for %d replicas", len(values), s.replicas)
	}
	all := make([]*tensors.Tensor, len(values))
	for r, value := range values {
		var err error
		if all[r], err = hostTensor(value); err != nil {
			return nil, fmt.Errorf("strategy: value of replica %d: %w", r, err)
		}
		if !all[r].Shape().Equal(all[0].Shape()) {
			return nil, fmt.Errorf("strategy: value of replica %d has shape %s, that of replica 0 %s; a compiled step has one shape for all",
				r, all[r].Shape(), all[0].Shape())
		}
	}
	v, err := s.place(ctx, true, all[0].DType(), all[0].Shape().Dimensions, a, func(r int, use func([]byte)) error {
		return all[r].ConstBytes(use)
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// SplitBatch cuts a global batch into the replicas' batches along dimension 0,
// whose size the number of replicas must divide.
func (s *TPUStrategy) SplitBatch(ctx context.Context, batch any, a logical.Annotation) (*PerReplica, error) {
	return s.splitBatch(ctx, batch, a, false)
}

// splitBatch cuts a global batch, or this process's rows of one.
func (s *TPUStrategy) splitBatch(ctx context.Context, batch any, a logical.Annotation, local bool) (*PerReplica, error) {
	tensor, err := hostTensor(batch)
	if err != nil {
		return nil, fmt.Errorf("strategy: split batch: %w", err)
	}
	replicas := s.shares(local)
	shape, err := shareShape(tensor.Shape().Dimensions, replicas)
	if err != nil {
		return nil, err
	}
	v, err := s.place(ctx, true, tensor.DType(), shape, a, func(r int, use func([]byte)) error {
		at := s.batchIndex(r, local)
		return tensor.ConstBytes(func(data []byte) {
			n := len(data) / replicas
			use(data[at*n : (at+1)*n])
		})
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// batchShape is the shape of a replica's part of a global batch.
func (s *TPUStrategy) batchShape(global []int) ([]int, error) { return shareShape(global, s.replicas) }

func shareShape(batch []int, replicas int) ([]int, error) {
	if len(batch) == 0 {
		return nil, fmt.Errorf("strategy: a scalar is no batch; mirror it, or give it a leading batch dimension")
	}
	if batch[0]%replicas != 0 {
		return nil, fmt.Errorf("strategy: a batch of %d rows does not divide among %d replicas; pad it to %d or drop %d rows",
			batch[0], replicas, (batch[0]+replicas-1)/replicas*replicas, batch[0]%replicas)
	}
	shape := append([]int(nil), batch...)
	shape[0] /= replicas
	return shape, nil
}

// place uploads a new value. read calls use with replica r's tensor.
func (s *TPUStrategy) place(ctx context.Context, perReplica bool, dtype dtypes.DType, shape []int, a logical.Annotation, read tensorReader) (Value, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	l, err := s.layout(dtype, shape, a, perReplica)
	if err != nil {
		return nil, err
	}
	buffers := make([]*pjrt.Buffer, len(s.devices))
	if err := s.upload(ctx, &l, read, buffers); err != nil {
		return nil, err
	}
	return s.newValue(perReplica, dtype, shape, a, buffers)
}
