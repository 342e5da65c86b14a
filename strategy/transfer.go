package strategy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
)

// Mirror copies a value to every replica. The value is a *[tensors.Tensor], a number or nested
// slices (see [tensors.FromAnyValue]), or a variable, component or value on the devices that is the
// same on all replicas. The annotation splits the copy over the logical devices of each replica; by
// default it is replicated. The caller must close the result.
//
// When Mirror returns, the caller may change or finalize the host value, as for all calls that copy
// host values. Mirror returns an [*Error] of kind ValueError for a value that is not a tensor, a
// [*logical.Error] for an annotation that does not fit, and [ErrClosed].
func (s *TPUStrategy) Mirror(ctx context.Context, value any, a logical.Annotation) (*Mirrored, error) {
	if err := RefuseTracing(ctx, "mirror", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	o := operandOf(value)
	if o.isReadable() {
		return o.mirror(ctx, s, a)
	}
	tensor, err := o.toTensor()
	if err != nil {
		return nil, newTensorError("mirror", err)
	}
	v, err := s.newValueFromTensor(ctx, tensor, false, tensor.Shape().Dimensions, a,
		func(_ int, data []byte) []byte { return data })
	if err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}

func newTensorError(op string, err error) error {
	return &Error{Op: "strategy: " + op, Reason: "no tensor", Err: err, Class: errkind.KindOr(err, errkind.ValueError)}
}

// PerReplica copies one value per replica to the devices, in replica order. Each value has a type
// that [TPUStrategy.Mirror] accepts, or is a tensor of package input. All values must have the same
// dtype and rank. With several processes, values may be the values of [TPUStrategy.LocalReplicas]
// only, and must have the same shape. The caller must close the result.
//
// If the shapes differ, the result can be reduced over axes, gathered and read, and be an argument
// of a training step. Other steps reject it unless [FunctionOptions].Padding allows it. A wrong
// number of values is an [*Error] of kind ValueError, a different dtype of kind TypeError, a
// different rank of kind InvalidArgumentError.
func (s *TPUStrategy) PerReplica(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	const op = "per-replica value"
	if err := RefuseTracing(ctx, op, fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	if len(values) != s.replicas && !(s.runtime.IsMultiProcess() && len(values) == len(s.runtime.Groups)) {
		if s.runtime.IsMultiProcess() {
			return nil, fault.New(errkind.ValueError, op, "give one value for each replica, or for each of this process's",
				"%d values for %d replicas, of which this process has %d",
				len(values), s.replicas, len(s.runtime.Groups))
		}
		return nil, fault.New(errkind.ValueError, op, "give one value for each replica",
			"%d values for %d replicas", len(values), s.replicas)
	}
	b := batchSplitter{s, len(values) != s.replicas, a}
	if all, ok := hostArrays(values); ok {
		return b.putHostArrays(ctx, all)
	}
	all := make([]*tensors.Tensor, len(values))
	for i, value := range values {
		var err error
		if all[i], err = toReplicaTensor(ctx, s, op, value); err != nil {
			return nil, newTensorError(fmt.Sprintf("value of replica %d", b.replica(i)), err)
		}
		if s.runtime.IsMultiProcess() && !all[i].Shape().Equal(all[0].Shape()) {
			return nil, fault.New(errkind.ValueError, op,
				"pad the values: with several processes a value has one shape on all replicas",
				"that of replica %d has shape %s, that of replica %d %s", b.replica(i), all[i].Shape(),
				b.replica(0), all[0].Shape())
		}
	}
	return b.putTensors(ctx, all)
}

// batchSplitter splits a batch over replicas. Without local, it splits a global batch over all
// replicas. With local, it splits the rows of this process over this process's replicas. The
// annotation splits the rows of a replica over its logical devices.
type batchSplitter struct {
	*TPUStrategy
	local      bool
	annotation logical.Annotation
}

// numShares returns the number of replicas that receive rows of the batch.
func (b batchSplitter) numShares() int {
	if n := len(b.runtime.Groups); b.local && n > 0 {
		return n
	}
	return b.replicas
}

// replica returns the replica that receives share i of the batch. It is the inverse of shareOf.
func (b batchSplitter) replica(i int) int {
	if !b.local {
		return i
	}
	return b.runtime.Groups[i]
}

func (b batchSplitter) shareOf(replica int) int {
	if !b.local {
		return replica
	}
	i, _ := slices.BinarySearch(b.runtime.Groups, replica)
	return i
}

// hostArray is a tensor in host memory that is not a GoMLX tensor, such as input.Tensor.
type hostArray interface {
	// DType returns false for a tensor that no device can store, such as strings.
	DType() (dtypes.DType, bool)
	Dims() []int
	Bytes() []byte
	String() string
}

// hostArrays converts values to host arrays. It returns false unless all values are host arrays
// with the same shape and dtype.
func hostArrays(values []any) ([]hostArray, bool) {
	all := make([]hostArray, len(values))
	for i, value := range values {
		x, ok := value.(hostArray)
		if !ok {
			return nil, false
		}
		all[i] = x
		dtype, _ := x.DType()
		if first, _ := all[0].DType(); dtype != first || !slices.Equal(x.Dims(), all[0].Dims()) {
			return nil, false
		}
	}
	return all, true
}

// putHostArrays copies one host array for each replica to the devices. All arrays have the same
// shape. Large arrays are copied in parallel.
func (b batchSplitter) putHostArrays(ctx context.Context, all []hostArray) (*PerReplica, error) {
	dtype, ok := all[0].DType()
	if !ok {
		return nil, newDTypeError("per-replica value", all[0])
	}
	v, err := b.newUploadedValue(true, dtype, all[0].Dims(), b.annotation,
		func(l *engine.Layout, buffers engine.Buffers) error {
			return b.runtime.PutTensor(ctx, l, func(r int) []byte { return all[b.shareOf(r)].Bytes() }, buffers)
		})
	if err != nil {
		return nil, err
	}
	return v.(*PerReplica), nil
}

// newDTypeError reports a host array whose dtype no device supports.
func newDTypeError(op string, t hostArray) error {
	return fault.New(errkind.TypeError, op, "turn it into numbers with Map", "%s cannot be on a device", t)
}

// SplitBatch splits a global batch over the replicas along dimension 0 and copies it to the
// devices, like [TPUStrategy.Mirror]. If local is true, batch has the rows of this process's
// replicas only. Rows that do not divide evenly over the replicas are an [*Error] of kind
// ValueError. The caller must close the result.
func (s *TPUStrategy) SplitBatch(ctx context.Context, batch any, a logical.Annotation, local bool) (*PerReplica,
	error) {
	if err := RefuseTracing(ctx, "split batch", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	return batchSplitter{s, local, a}.splitBatch(ctx, batch)
}

func (b batchSplitter) splitBatch(ctx context.Context, batch any) (*PerReplica, error) {
	tensor, err := operandOf(batch).copyHost(ctx, b.TPUStrategy)
	if err != nil {
		return nil, newTensorError("split batch", err)
	}
	replicas := b.numShares()
	shape, err := replicaShareShape(tensor.Shape().Dimensions, replicas)
	if err != nil {
		return nil, err
	}
	v, err := b.newValueFromTensor(ctx, tensor, true, shape, b.annotation, func(r int, data []byte) []byte {
		at, n := b.shareOf(r), len(data)/replicas
		return data[at*n : (at+1)*n]
	})
	if err != nil {
		return nil, err
	}
	v.base().batch = true
	return v.(*PerReplica), nil
}

// replicaShareShape returns the shape of the rows that each replica receives from a batch.
func replicaShareShape(batch []int, replicas int) ([]int, error) {
	if len(batch) == 0 {
		return nil, fault.New(errkind.ValueError, "split batch", "mirror it, or give it a leading batch dimension",
			"a scalar is no batch")
	}
	if batch[0]%replicas != 0 {
		hint := fmt.Sprintf("pad it to %d or drop %d rows", (batch[0]+replicas-1)/replicas*replicas, batch[0]%replicas)
		return nil, fault.New(errkind.ValueError, "split batch", hint,
			"a batch of %d rows does not divide among %d replicas", batch[0], replicas)
	}
	shape := append([]int(nil), batch...)
	shape[0] /= replicas
	return shape, nil
}

// newValueFromTensor creates a value from one tensor. The function part returns the bytes for
// replica r.
func (s *TPUStrategy) newValueFromTensor(ctx context.Context, tensor *tensors.Tensor, perReplica bool, shape []int,
	a logical.Annotation, part func(r int, data []byte) []byte) (Value, error) {
	return s.newUploadedValue(perReplica, tensor.DType(), shape, a,
		func(l *engine.Layout, buffers engine.Buffers) error {
			return s.putTensor(ctx, l, tensor, part, buffers)
		})
}

// putTensor copies one tensor to this process's devices. The function part returns the bytes for
// replica r.
func (s *TPUStrategy) putTensor(ctx context.Context, l *engine.Layout, tensor *tensors.Tensor,
	part func(r int, data []byte) []byte, buffers engine.Buffers) error {
	var failed error
	err := tensor.ConstBytes(func(data []byte) {
		failed = s.runtime.PutTensor(ctx, l, func(r int) []byte { return part(r, data) }, buffers)
	})
	return cmp.Or(failed, err)
}

// newUploadedValue creates a value. The function upload creates its buffers.
func (s *TPUStrategy) newUploadedValue(perReplica bool, dtype dtypes.DType, shape []int, a logical.Annotation,
	upload func(*engine.Layout, engine.Buffers) error) (Value, error) {
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	l, err := s.layout(dtype, shape, a, perReplica)
	if err != nil {
		return nil, err
	}
	buffers := s.runtime.Buffers()
	if err := upload(l, buffers); err != nil {
		return nil, err
	}
	return s.newValue(perReplica, dtype, shape, a, buffers)
}

// toReplicaTensor converts one replica's value to a tensor.
func toReplicaTensor(ctx context.Context, s *TPUStrategy, op string, x any) (*tensors.Tensor, error) {
	if t, ok := x.(hostArray); ok {
		return copyInputTensor(op, t)
	}
	return operandOf(x).copyHost(ctx, s)
}
