package strategy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"weak"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// deviceValue is a tensor on the devices of a strategy. It has one buffer for each logical device
// of each replica.
type deviceValue struct {
	valueAccess
	strategy     *TPUStrategy
	dtype        dtypes.DType
	shape        []int // shape of one replica's tensor
	annotation   logical.Annotation
	replicaShard spmd.ReplicaShard // set for a variable
	perReplica   bool
	// batch is set for a split batch, whose first dimension counts rows.
	batch bool
	// equal is set for a per-replica value whose tensors are known to be equal, such as the result
	// of a collective. Calls treat it like a mirrored value.
	equal bool
	steps int // number of steps of a StackedBatches, otherwise 0
	// replicaShapes has the replicas' shapes if they differ. shape then has the largest size of
	// each dimension, and the buffers are padded to it.
	replicaShapes [][]int
	// abstract is set for a value without contents, which is created from a shape or ahead of time.
	abstract bool

	// only reports for each partition whether it has the mirrored value. nil means all; see
	// keepOnDevices.
	only []bool

	mu      sync.Mutex // guards the fields below
	buffers engine.Buffers
	closed  bool
	// origin identifies an argument or a result of an eager call across processes. It is empty for
	// other values.
	origin string
}

// PerReplica is a value that may differ between replicas, like TensorFlow's PerReplica. It is safe
// for concurrent use.
type PerReplica struct{ deviceValue }

// Mirrored reports whether the value is known to be the same on every replica, for example because
// a collective computed it. Calls that require one value for all replicas accept such a value. The
// tensors are not compared, so Mirrored may return false although they are equal.
func (v *PerReplica) Mirrored() bool { return !v.isVarying() }

// Mirrored is a value that is the same on each replica, like TensorFlow's Mirrored. It is safe for
// concurrent use.
type Mirrored struct{ deviceValue }

// Value copies the value to the host. Because it is the same on every replica, no replica must be
// selected.
func (m *Mirrored) Value(ctx context.Context) (*tensors.Tensor, error) { return m.Local(ctx, 0) }

// Float64 copies a tensor with one element to the host as a float64. It returns the errors of
// Local, and an [*Error] for a tensor of another size or a dtype that is not a real number.
func (m *Mirrored) Float64(ctx context.Context) (float64, error) {
	t, err := m.Value(ctx)
	if err != nil {
		return 0, err
	}
	if t.Size() != 1 {
		return 0, fault.New(errkind.ValueError, "read a number", "read the tensor with Value",
			"a value of shape %s is no number", t.Shape())
	}
	return number.ReadScalar(t)
}

// StackedBatches has a batch for each of several steps. A function that runs with it executes the
// steps in one launch, in a loop on the devices. The function's other arguments are the same in all
// steps. Each step reads the variables that the previous step wrote. The function returns the
// results of the last step.
type StackedBatches struct{ deviceValue }

// Local returns an error that matches errors.ErrUnsupported, because stacked batches cannot be
// copied back to the host.
func (v *StackedBatches) Local(context.Context, int) (*tensors.Tensor, error) {
	return nil, &errkind.Fault{Op: "strategy: read", Subject: v.String(),
		Reason: "the batches of a loop are not read back",
		Hint:   "keep the host's batches", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
}

// Value is a *PerReplica, a *Mirrored or a *StackedBatches on the devices, like TensorFlow's
// tf.distribute.DistributedValues.
type Value interface {
	// Shape returns the dtype and the dimensions of one replica's tensor.
	Shape() shapes.Shape
	// Annotation returns the split of a replica's tensor over its logical devices.
	Annotation() logical.Annotation
	// Shards lists the shards by replica, then by logical device. It returns nil for a closed value
	// and ahead of time.
	Shards() []Shard
	// Local waits for the tensor of one replica, counted from 0, and copies it to the host. The
	// caller owns the tensor. Errors: the error of the program that computed the value,
	// [ErrClosed], [ErrRemote] for a replica of another process, [ErrAheadOfTime].
	Local(ctx context.Context, replica int) (*tensors.Tensor, error)
	// Ready waits until all devices have computed the value. It returns the error of the program
	// that computed the value, [ErrClosed] or the context's error. The computation continues after
	// the context is canceled.
	Ready(ctx context.Context) error
	// Close releases the device memory. Steps that are reading the value are not affected. Without
	// Close, the strategy's Close or the garbage collector, which does not consider device memory,
	// releases it. A second Close does nothing.
	Close() error

	base() *deviceValue
	valueAccessible
}

var (
	_ Value = (*PerReplica)(nil)
	_ Value = (*Mirrored)(nil)
)

func (v *deviceValue) base() *deviceValue { return v }

// isVarying reports whether the value may differ between replicas.
func (v *deviceValue) isVarying() bool { return v.perReplica && !v.equal }

func (v *deviceValue) Shape() shapes.Shape { return shapes.Make(v.dtype, v.shape...) }

func (v *deviceValue) Annotation() logical.Annotation { return v.annotation }

// replicaShape returns the shape of a replica's tensor without padding.
func (v *deviceValue) replicaShape(replica int) []int {
	if v.replicaShapes != nil {
		return v.replicaShapes[replica]
	}
	return v.shape
}

func (v *deviceValue) String() string {
	kind := "Mirrored"
	if v.perReplica {
		kind = "PerReplica"
	}
	return fmt.Sprintf("%s(%s%v, %s)", kind, v.dtype, v.shape, v.annotation)
}

// withoutContents returns a copy of the description of the value, without its buffers.
func (v *deviceValue) withoutContents() *deviceValue {
	return &deviceValue{dtype: v.dtype, shape: v.shape, annotation: v.annotation, perReplica: v.perReplica,
		steps: v.steps, replicaShapes: v.replicaShapes}
}

// sameSignature reports whether a program that was compiled for v also accepts o.
func (v *deviceValue) sameSignature(o *deviceValue) bool {
	return v.dtype == o.dtype && slices.Equal(v.shape, o.shape) && v.annotation.Equal(o.annotation) &&
		v.perReplica == o.perReplica && v.steps == o.steps && (v.replicaShapes != nil) == (o.replicaShapes != nil)
}

// openBuffers returns the buffers, or an error if the value is closed or has no contents.
func (v *deviceValue) openBuffers() (engine.Buffers, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, newClosedError("close it after its last use", "value %s", v)
	}
	if v.abstract {
		if err := v.strategy.checkRunnable("reading", v.String()); err != nil {
			return nil, err
		}
		return nil, fault.New(errkind.ValueError, v.String(), "give tensors", "made of shapes, which have no contents")
	}
	return v.buffers, nil
}

// refill releases the old contents and calls fill to store new contents in the same buffers. A
// concurrent Close waits until fill returns, and then closes the new contents.
func (v *deviceValue) refill(fill func(buffers engine.Buffers) error) (engine.Buffers, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, newClosedError("close it after its last use", "value %s", v)
	}
	// A running step keeps the buffers that it reads; Close only drops this reference.
	if err := v.buffers.Close(); err != nil {
		return nil, fault.Wrap(fmt.Sprintf("filling %s", v), err, "")
	}
	return v.buffers, fill(v.buffers)
}

func (v *deviceValue) Ready(ctx context.Context) error {
	if err := RefuseTracing(ctx, "wait", fault.InsteadOfWaiting); err != nil {
		return err
	}
	buffers, err := v.openBuffers()
	if err != nil {
		return err
	}
	return waitReady(ctx, buffers)
}

func waitReady(ctx context.Context, buffers engine.Buffers) error {
	if err := buffers.Ready(ctx); err != nil {
		return asClosedError(fault.Wrap("waiting for a value", err, ""))
	}
	return nil
}

func (v *deviceValue) Close() error {
	v.strategy.unregisterValue(weak.Make(v))
	return v.release()
}

func (v *deviceValue) release() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	return v.buffers.Close()
}

// takeBuffers closes a value and returns its buffers, which the caller then owns.
func (v *deviceValue) takeBuffers() engine.Buffers {
	v.strategy.unregisterValue(weak.Make(v))
	v.mu.Lock()
	defer v.mu.Unlock()
	buffers := v.buffers
	v.buffers, v.closed = nil, true
	return buffers
}

func (v *deviceValue) Local(ctx context.Context, replica int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, "read", fault.InsteadOfReading); err != nil {
		return nil, err
	}
	if replica < 0 || replica >= v.strategy.replicas {
		return nil, fault.New(errkind.ValueError, "read", "count from 0", "replica %d of %d", replica,
			v.strategy.replicas)
	}
	buffers, err := v.openBuffers()
	if err != nil {
		return nil, err
	}
	tensor, err := v.download(ctx, buffers, replica)
	if err != nil || v.replicaShapes == nil {
		return tensor, err
	}
	return truncateTensor(tensor, v.replicaShapes[replica])
}

// download copies a replica's tensor to the host. It returns an error for a tensor of another
// process, unless a replica of this process has an equal tensor.
func (v *deviceValue) download(ctx context.Context, buffers engine.Buffers, replica int) (*tensors.Tensor, error) {
	s := v.strategy
	if err := s.checkRunnable("reading a value"); err != nil {
		return nil, err
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	from, err := v.sourcePartitions(l, replica)
	if err != nil {
		return nil, err
	}
	// Wait for the value before allocating the host tensor, because a failed run has no value.
	if err := s.runtime.Wait(ctx, from, buffers); err != nil {
		return nil, asClosedError(err)
	}
	tensor := tensors.FromShape(v.Shape())
	var failed error
	err = tensor.MutableBytes(func(data []byte) { failed = s.runtime.GetTensor(ctx, l, buffers, from, data) })
	failed = asClosedError(failed)
	if failed == nil && err != nil {
		failed = fault.Wrap(fmt.Sprintf("reading replica %d", replica), err, "")
	}
	if failed != nil {
		return nil, failed
	}
	return tensor, nil
}

// sourcePartitions returns the partitions of this process that store a replica's tensor. For a
// mirrored tensor these may be the partitions of any replica.
func (v *deviceValue) sourcePartitions(l *engine.Layout, replica int) ([]int, error) {
	s := v.strategy
	from, missing, ok := s.runtime.Sources(l, replica, v.hasPartition, !v.perReplica)
	if ok {
		return from, nil
	}
	if l.IsReplicated() {
		missing = (replica+1)*s.logicalDevices - 1
	}
	for d := range v.only { // a device that has the shard
		if v.only[d] &&
			(l.IsReplicated() || l.FirstPartition(d%s.logicalDevices) == l.FirstPartition(missing%s.logicalDevices)) {
			missing = d
			break
		}
	}
	if v.only != nil {
		return nil, s.newRemoteError(missing, "read it there, or reduce to all devices where it is made")
	}
	return nil, s.newRemoteError(missing, readThere)
}

const readThere = "read it there, or Reduce or Gather it on the devices first"

// newRemoteError reports a read from a partition of another process.
func (s *TPUStrategy) newRemoteError(partition int, hint string) error {
	return &errkind.Fault{Op: fmt.Sprintf("strategy: reading logical device %d of replica %d",
		partition%s.logicalDevices, partition/s.logicalDevices),
		Reason: fmt.Sprintf("it is in process %d, this is process %d with replicas %v", s.runtime.Of[partition],
			s.runtime.Process, s.runtime.Groups),
		Hint: hint, Match: ErrRemote}
}

// LocalResults copies the tensors of [TPUStrategy.LocalReplicas] to the host, in replica order,
// like TensorFlow's experimental_local_results. It returns the errors of [Value].Local, and
// [ErrOtherStrategy].
func (s *TPUStrategy) LocalResults(ctx context.Context, value Value) ([]*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, "local results", "use MergeContext.LocalResults, or read after the run"); err != nil {
		return nil, err
	}
	if err := checkOwnedBy(s, value); err != nil {
		return nil, err
	}
	results := make([]*tensors.Tensor, len(s.runtime.Groups))
	for i, r := range s.runtime.Groups {
		var err error
		if results[i], err = value.Local(ctx, r); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// checkOwnedBy returns an error if value is nil or belongs to another strategy.
func checkOwnedBy(s *TPUStrategy, value Value) error {
	if isNil(value) {
		return fault.New(errkind.TypeError, "value", "give a value of the strategy", "no value")
	}
	if other := value.base().strategy; other != s {
		return fault.OtherStrategy("value", value.base().String())
	}
	return nil
}

func isNil(v Value) bool { return v == nil || reflect.ValueOf(v).IsNil() }

// newValue returns a value that owns the buffers. If the program drops the value without closing
// it, the garbage collector releases the buffers.
func (s *TPUStrategy) newValue(perReplica bool, dtype dtypes.DType, shape []int, a logical.Annotation,
	buffers engine.Buffers) (Value, error) {
	var value Value = &Mirrored{}
	if perReplica {
		value = &PerReplica{}
	}
	base := value.base()
	base.valueAccess = engine.NewAccess(internalValue{base})
	base.strategy, base.dtype, base.shape, base.annotation = s, dtype, slices.Clone(shape), a
	base.perReplica, base.buffers, base.abstract = perReplica, buffers, len(buffers) == 0
	if err := s.registerValue(base); err != nil {
		return nil, errors.Join(err, base.release())
	}
	return value, nil
}

func (v *deviceValue) Strategy() *TPUStrategy { return v.strategy }

// asValue returns value as a Value, or a nil interface if err is not nil. A direct conversion would
// return a non-nil interface with a nil pointer.
func asValue[T Value](v T, err error) (Value, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// temporaryValues are values that a call creates and closes before it returns.
type temporaryValues []Value

func (c temporaryValues) close() error {
	var errs []error
	for _, v := range c {
		errs = append(errs, v.Close())
	}
	return errors.Join(errs...)
}

// hasPartition reports whether the value still has its buffer on partition d.
func (v *deviceValue) hasPartition(d int) bool { return v.only == nil || v.only[d] }
