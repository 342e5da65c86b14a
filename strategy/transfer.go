package strategy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
)

// Mirror copies a host value to every replica. The value is a *[tensors.Tensor], or what
// [tensors.FromAnyValue] takes (numbers and nested slices); Mirror copies nested slices into a tensor
// first, row by row. A value of the devices that is the same on all replicas, a component and a
// variable are copied on the devices. The annotation splits the copy over the logical devices of
// each replica; its zero value puts a whole copy on each.
//
// When Mirror returns, as with all calls that copy host values, the host value has been read and
// the caller may change or finalize it; the copy may still be under way. The result is the caller's
// to Close. Errors: an [*Error] of kind ValueError for a value that is no tensor, a
// [*logical.Error] for an annotation that does not fit, [ErrClosed].
func (s *TPUStrategy) Mirror(ctx context.Context, value any, a logical.Annotation) (*Mirrored, error) {
	if err := RefuseTracing(ctx, "mirror", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	o := operandOf(value)
	if o.readable() {
		return o.mirror(ctx, s, a)
	}
	tensor, err := o.tensor()
	if err != nil {
		return nil, noTensor("mirror", err)
	}
	v, err := s.uploadedTensor(ctx, tensor, false, tensor.Shape().Dimensions, a, func(_ int, data []byte) []byte { return data })
	if err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}

// noTensor is the error of a host value that is no tensor.
func noTensor(op string, err error) error {
	return &Error{Op: "strategy: " + op, Reason: "no tensor", Err: err, Class: errkind.Or(err, errkind.ValueError)}
}

// PerReplica copies a value for each replica to the devices, in replica order. With several
// processes the values may be those of this process's replicas only, in the order of
// [TPUStrategy.LocalReplicas]. A value is what [TPUStrategy.Mirror] takes, or a tensor of package
// input, which is copied from where it lies. All have one dtype and rank. Another number of values
// is an [*Error] of kind ValueError, another dtype one of kind TypeError, another rank one of kind
// InvalidArgumentError. The result is the caller's.
//
// Shapes may differ between the replicas, and may be empty. Such a value can be reduced along axes,
// gathered and read, and be an argument of a training step. Another step, which has one shape,
// refuses it unless [FunctionOptions.Padding] takes it. With several processes all values have one
// shape; steps compare the shapes over the processes when they are compiled.
func (s *TPUStrategy) PerReplica(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	const op = "per-replica value"
	if err := RefuseTracing(ctx, op, fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	if len(values) != s.replicas && !(s.machine.Several() && len(values) == len(s.machine.Groups)) {
		if s.machine.Several() {
			return nil, fault.New(errkind.ValueError, op, "give one value for each replica, or for each of this process's", "%d values for %d replicas, of which this process has %d",
				len(values), s.replicas, len(s.machine.Groups))
		}
		return nil, fault.New(errkind.ValueError, op, "give one value for each replica", "%d values for %d replicas", len(values), s.replicas)
	}
	b := batchShare{s, len(values) != s.replicas, a}
	if all, ok := likeTensors(values); ok {
		return b.feed(ctx, all)
	}
	all := make([]*tensors.Tensor, len(values))
	for i, value := range values {
		var err error
		if all[i], err = replicaTensor(ctx, s, op, value); err != nil {
			return nil, noTensor(fmt.Sprintf("value of replica %d", b.replica(i)), err)
		}
		if s.machine.Several() && !all[i].Shape().Equal(all[0].Shape()) {
			return nil, fault.New(errkind.ValueError, op, "pad the values: with several processes a value has one shape on all replicas",
				"that of replica %d has shape %s, that of replica %d %s", b.replica(i), all[i].Shape(), b.replica(0), all[0].Shape())
		}
	}
	return b.put(ctx, all)
}

// batchShare is how the replicas share a batch: a global one, or the rows of this process among its
// own replicas. The annotation is that of a replica's part.
type batchShare struct {
	*TPUStrategy
	local      bool
	annotation logical.Annotation
}

// count is the number of replicas that share the batch: all ahead of time, without processes.
func (b batchShare) count() int {
	if n := len(b.machine.Groups); b.local && n > 0 {
		return n
	}
	return b.replicas
}

// replica is the replica that part i of the batch is for, and part the part that is a replica's.
func (b batchShare) replica(i int) int {
	if !b.local {
		return i
	}
	return b.machine.Groups[i]
}

func (b batchShare) part(replica int) int {
	if !b.local {
		return replica
	}
	i, _ := slices.BinarySearch(b.machine.Groups, replica)
	return i
}

// likeTensors are values that are all tensors of package input, of one shape and kind.
func likeTensors(values []any) ([]input.Tensor, bool) {
	all := make([]input.Tensor, len(values))
	for i, value := range values {
		var ok bool
		if all[i], ok = value.(input.Tensor); !ok || !all[i].Like(all[0]) {
			return nil, false
		}
	}
	return all, true
}

// feed is put for tensors of package input of one shape. Much is copied to the devices side by side.
func (b batchShare) feed(ctx context.Context, all []input.Tensor) (*PerReplica, error) {
	dtype, ok := all[0].Kind().DType()
	if !ok {
		return nil, noDType("per-replica value", all[0])
	}
	v, err := b.uploadedBy(true, dtype, all[0].Dims(), b.annotation, func(l *mesh.Layout, buffers mesh.Buffers) error {
		return b.machine.Put(ctx, l, func(r int) []byte { return all[b.part(r)].Bytes() }, buffers)
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// noDType is the error of a tensor of package input that is no tensor of a device.
func noDType(op string, t input.Tensor) error {
	return fault.New(errkind.TypeError, op, "turn it into numbers with Map", "%s cannot be on a device", t)
}

// SplitBatch cuts a global batch into the replicas' batches along dimension 0 and copies them to
// the devices, like [TPUStrategy.Mirror]. If the number of replicas does not divide the batch, it
// returns an [*Error] of kind ValueError. If local is true, batch holds the rows of this process
// only, which are cut among its replicas.
func (s *TPUStrategy) SplitBatch(ctx context.Context, batch any, a logical.Annotation, local bool) (*PerReplica, error) {
	if err := RefuseTracing(ctx, "split batch", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	return batchShare{s, local, a}.split(ctx, batch)
}

// split cuts a batch and copies it to the devices.
func (b batchShare) split(ctx context.Context, batch any) (*PerReplica, error) {
	tensor, err := operandOf(batch).copyHost(ctx, b.TPUStrategy)
	if err != nil {
		return nil, noTensor("split batch", err)
	}
	replicas := b.count()
	shape, err := shareShape(tensor.Shape().Dimensions, replicas)
	if err != nil {
		return nil, err
	}
	v, err := b.uploadedTensor(ctx, tensor, true, shape, b.annotation, func(r int, data []byte) []byte {
		at, n := b.part(r), len(data)/replicas
		return data[at*n : (at+1)*n]
	})
	if err != nil {
		return nil, err
	}
	v.base().batch = true
	return v.(*PerReplica), nil
}

// shareShape is the shape of a replica's part of a batch.
func shareShape(batch []int, replicas int) ([]int, error) {
	if len(batch) == 0 {
		return nil, fault.New(errkind.ValueError, "split batch", "mirror it, or give it a leading batch dimension", "a scalar is no batch")
	}
	if batch[0]%replicas != 0 {
		hint := fmt.Sprintf("pad it to %d or drop %d rows", (batch[0]+replicas-1)/replicas*replicas, batch[0]%replicas)
		return nil, fault.New(errkind.ValueError, "split batch", hint, "a batch of %d rows does not divide among %d replicas", batch[0], replicas)
	}
	shape := append([]int(nil), batch...)
	shape[0] /= replicas
	return shape, nil
}

// uploadedTensor makes a value of parts of one tensor: part answers replica r's.
func (s *TPUStrategy) uploadedTensor(ctx context.Context, tensor *tensors.Tensor, perReplica bool, shape []int, a logical.Annotation, part func(r int, data []byte) []byte) (Value, error) {
	return s.uploadedBy(perReplica, tensor.DType(), shape, a, func(l *mesh.Layout, buffers mesh.Buffers) error {
		return s.putTensor(ctx, l, tensor, part, buffers)
	})
}

// putTensor copies parts of one tensor to this process's devices, as [mesh.Machine.Put] does: part
// answers replica r's.
func (s *TPUStrategy) putTensor(ctx context.Context, l *mesh.Layout, tensor *tensors.Tensor, part func(r int, data []byte) []byte, buffers mesh.Buffers) error {
	var failed error
	err := tensor.ConstBytes(func(data []byte) {
		failed = s.machine.Put(ctx, l, func(r int) []byte { return part(r, data) }, buffers)
	})
	return cmp.Or(failed, err)
}

// uploadedBy makes a value of the buffers that upload fills.
func (s *TPUStrategy) uploadedBy(perReplica bool, dtype dtypes.DType, shape []int, a logical.Annotation, upload func(*mesh.Layout, mesh.Buffers) error) (Value, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	l, err := s.layout(dtype, shape, a, perReplica)
	if err != nil {
		return nil, err
	}
	buffers := s.machine.Buffers()
	if err := upload(l, buffers); err != nil {
		return nil, err
	}
	return s.newValue(perReplica, dtype, shape, a, buffers)
}

// replicaTensor is a replica's value of a call that takes one for each: a tensor of package input,
// or what tensorOf takes.
func replicaTensor(ctx context.Context, s *TPUStrategy, op string, x any) (*tensors.Tensor, error) {
	if t, ok := x.(input.Tensor); ok {
		return copiedInput(op, t)
	}
	return operandOf(x).copyHost(ctx, s)
}
