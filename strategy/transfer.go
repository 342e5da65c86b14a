package strategy

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// download copies a replica's tensor to the host. One that is elsewhere is an error, unless it is
// the same as that of a replica which is here.
func (v *distributed) download(ctx context.Context, buffers mesh.Buffers, replica int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, "read", fault.InsteadOfReading); err != nil {
		return nil, err
	}
	s := v.strategy
	if err := s.runnable("reading a value"); err != nil {
		return nil, err
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	from, err := s.sources(l, v, replica)
	if err != nil {
		return nil, err
	}
	// A run that failed, such as for want of memory, has nothing to make room for.
	if err := s.devices.Wait(ctx, from, buffers); err != nil {
		return nil, closedMeanwhile(err)
	}
	tensor := tensors.FromShape(shapes.Make(v.dtype, v.shape...))
	var failed error
	err = tensor.MutableBytes(func(data []byte) { failed = s.devices.Get(ctx, l, buffers, from, data) })
	failed = closedMeanwhile(failed)
	if failed == nil && err != nil {
		failed = fault.Of(fmt.Sprintf("reading replica %d", replica), err, "")
	}
	if failed != nil {
		return nil, failed
	}
	return tensor, nil
}

// Mirror copies a host value to every replica. The value is a *tensors.Tensor, or what
// tensors.FromAnyValue takes (numbers and nested slices); Mirror copies nested slices into a tensor
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
	return &Error{Op: "strategy: " + op, Reason: "no tensor", Err: err, Class: errkind.Or(err, ValueError)}
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
	local := s.machine.Several() && len(values) == len(s.machine.Groups)
	if len(values) != s.replicas && !local {
		if s.machine.Several() {
			return nil, fault.New(ValueError, op, "give one value for each replica, or for each of this process's", "%d values for %d replicas, of which this process has %d",
				len(values), s.replicas, len(s.machine.Groups))
		}
		return nil, fault.New(ValueError, op, "give one value for each replica", "%d values for %d replicas", len(values), s.replicas)
	}
	if held, ok := allTensors(values); ok {
		if !s.machine.Several() {
			return s.raggedTensors(ctx, held, a)
		}
		if !local {
			var err error
			if held, err = s.ownTensors(held); err != nil {
				return nil, err
			}
		}
		return s.localTensors(ctx, held, a)
	}
	if local && len(values) != s.replicas {
		return s.localPerReplica(ctx, values, a)
	}
	all := make([]*tensors.Tensor, len(values))
	for r, value := range values {
		var err error
		if all[r], err = s.replicaTensor(ctx, op, value); err != nil {
			return nil, noTensor(fmt.Sprintf("value of replica %d", r), err)
		}
		if s.machine.Several() && !all[r].Shape().Equal(all[0].Shape()) {
			return nil, fault.New(ValueError, op, "pad the values: with several processes a value has one shape on all replicas",
				"that of replica %d has shape %s, that of replica 0 %s", r, all[r].Shape(), all[0].Shape())
		}
	}
	return s.perReplicaOf(ctx, all, a)
}

// SplitBatch cuts a global batch into the replicas' batches along dimension 0 and copies them to
// the devices, like [TPUStrategy.Mirror]. If the number of replicas does not divide the batch, it
// returns an [*Error] of kind ValueError. If local is true, batch holds the rows of this process
// only, which are cut among its replicas.
func (s *TPUStrategy) SplitBatch(ctx context.Context, batch any, a logical.Annotation, local bool) (*PerReplica, error) {
	if err := RefuseTracing(ctx, "split batch", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	return s.splitBatch(ctx, batch, a, local)
}

// splitBatch cuts a global batch, or this process's rows of one.
func (s *TPUStrategy) splitBatch(ctx context.Context, batch any, a logical.Annotation, local bool) (*PerReplica, error) {
	tensor, err := operandOf(batch).copyHost(ctx, s)
	if err != nil {
		return nil, noTensor("split batch", err)
	}
	replicas := s.shares(local)
	shape, err := shareShape(tensor.Shape().Dimensions, replicas)
	if err != nil {
		return nil, err
	}
	v, err := s.uploadedTensor(ctx, tensor, true, shape, a, func(r int, data []byte) []byte {
		at, n := s.batchIndex(r, local), len(data)/replicas
		return data[at*n : (at+1)*n]
	})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// shareShape is the shape of a replica's part of a batch.
func shareShape(batch []int, replicas int) ([]int, error) {
	if len(batch) == 0 {
		return nil, fault.New(ValueError, "split batch", "mirror it, or give it a leading batch dimension", "a scalar is no batch")
	}
	if batch[0]%replicas != 0 {
		hint := fmt.Sprintf("pad it to %d or drop %d rows", (batch[0]+replicas-1)/replicas*replicas, batch[0]%replicas)
		return nil, fault.New(ValueError, "split batch", hint, "a batch of %d rows does not divide among %d replicas", batch[0], replicas)
	}
	shape := append([]int(nil), batch...)
	shape[0] /= replicas
	return shape, nil
}

// uploaded returns a new value. read calls use with replica r's tensor.
func (s *TPUStrategy) uploaded(ctx context.Context, perReplica bool, dtype dtypes.DType, shape []int, a logical.Annotation, read tensorReader) (Value, error) {
	return s.uploadedBy(perReplica, dtype, shape, a, func(l *mesh.Layout, buffers mesh.Buffers) error { return s.upload(ctx, l, read, buffers) })
}

// uploadedTensor is uploaded for parts of one tensor: part answers replica r's.
func (s *TPUStrategy) uploadedTensor(ctx context.Context, tensor *tensors.Tensor, perReplica bool, shape []int, a logical.Annotation, part func(r int, data []byte) []byte) (Value, error) {
	return s.uploadedBy(perReplica, tensor.DType(), shape, a, func(l *mesh.Layout, buffers mesh.Buffers) error {
		var failed error
		err := tensor.ConstBytes(func(data []byte) {
			failed = s.uploadHeld(ctx, l, func(r int) []byte { return part(r, data) }, buffers)
		})
		return cmp.Or(failed, err)
	})
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
