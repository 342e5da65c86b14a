package strategy

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Variable is a variable on the devices of a strategy, like TensorFlow's tf.Variable in the
// strategy's scope. It has one component per replica. The components of an [OnWrite] variable are
// equal; the components of an [OnRead] variable may differ. It is safe for concurrent use.
type Variable struct {
	strategy   *TPUStrategy
	path       string
	dtype      dtypes.DType
	shape      []int
	annotation logical.Annotation
	// replicaShard is the dimension that is sharded over the replicas, if any.
	replicaShard spmd.ReplicaShard
	trainable    bool

	synchronization VariableSynchronization
	aggregation     VariableAggregation
	// localWrites lets the replicas write different values to their components. Such a variable and
	// an OnRead variable are stored per replica, because the compiler assumes that mirrored buffers
	// are equal on all replicas.
	localWrites bool
	column      int
	// unlisted is set for an internal variable; see [internalStrategy.NewZeroVariables].
	unlisted bool

	buffers engine.Buffers // guarded by engine.Runtime.Launch, as is closed
	closed  bool
	// pending is the store whose value is not yet copied to the buffers, which are then nil.
	pending atomic.Pointer[Variables]
	// constant is the value of a large constant that is not yet in the buffers, otherwise nil.
	constant atomic.Pointer[hostConstant]
}

// Path returns the path in the store, or the name passed to NewVariable.
func (v *Variable) Path() string { return v.path }

// ComponentName returns the name of a replica's component: Path for replica 0, then Path with the
// suffix "/replica_1" and so on.
func (v *Variable) ComponentName(replica int) string {
	if replica == 0 {
		return v.path
	}
	return fmt.Sprintf("%s/replica_%d", v.path, replica)
}

// Shape returns the dtype and the dimensions of the unsharded variable.
func (v *Variable) Shape() shapes.Shape { return shapes.Make(v.dtype, v.shape...) }

// Annotation returns how the variable is split over the logical devices.
func (v *Variable) Annotation() logical.Annotation { return v.annotation }

// Trainable reports whether optimizers change the variable.
func (v *Variable) Trainable() bool { return v.trainable }

func (v *Variable) Synchronization() VariableSynchronization { return v.synchronization }

func (v *Variable) Aggregation() VariableAggregation { return v.aggregation }

// LocalWrites reports whether [VariableOptions].LocalWrites was set for the variable.
func (v *Variable) LocalWrites() bool { return v.localWrites }

func (v *Variable) Strategy() *TPUStrategy { return v.strategy }

// BytesPerDevice returns the size of the variable's buffer on each device.
func (v *Variable) BytesPerDevice() int {
	l, err := v.layout()
	if err != nil { // already reported when the variable was created
		return 0
	}
	return l.ShardBytes
}

func (v *Variable) String() string {
	return fmt.Sprintf("Variable(%q, %s%v, %s, %s, %s)", v.path, v.dtype, v.shape, v.synchronization, v.aggregation,
		v.annotation)
}

// perReplica reports whether the components may differ between replicas.
func (v *Variable) perReplica() bool { return v.synchronization == OnRead || v.localWrites }

// programKey returns the same string for variables that one compiled program can use
// interchangeably.
func (v *Variable) programKey() string {
	return fmt.Sprintf("%s%v %s %s %s %t %v", v.dtype, v.shape, v.annotation, v.synchronization, v.aggregation,
		v.localWrites, v.replicaShard)
}

// asDeviceValue describes the variable as a value with the same layout, without buffers.
func (v *Variable) asDeviceValue() *deviceValue {
	return &deviceValue{strategy: v.strategy, dtype: v.dtype, shape: v.shape, annotation: v.annotation,
		perReplica: v.perReplica(), replicaShard: v.replicaShard}
}

func (v *Variable) layout() (*engine.Layout, error) {
	l, err := v.asDeviceValue().layout()
	return l, v.wrapError(err)
}

func (v *Variable) subject() string { return fmt.Sprintf("variable %q", v.path) }

// wrapError adds the variable's name to err. It returns nil if err is nil.
func (v *Variable) wrapError(cause error) error {
	if cause == nil {
		return nil
	}
	return fault.Wrap(v.subject(), cause, "")
}

// checkOpen returns an error if the variable or its strategy is closed. The caller must hold
// engine.Runtime.Launch.
func (v *Variable) checkOpen() error {
	if err := v.strategy.checkOpen(); err != nil {
		return err
	}
	if v.closed {
		return newClosedError("close it after its last use", "variable %q", v.path)
	}
	return nil
}

// newLoad returns an engine.Load that copies a saved value to the variable, one part after another.
func (v *Variable) newLoad(src lazytensor.Reader) (*engine.Load, error) {
	if shape := src.Shape(); !shape.Equal(v.Shape()) {
		return nil, fault.New(errkind.ValueError, v.subject(), "give parts of its shape and dtype",
			"parts of %s for a variable of %s", shape, v.Shape())
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	return &engine.Load{Name: v.subject(), Layout: l, From: src}, nil
}

// replaceBuffers replaces the buffers of an open variable, and closes the old buffers. The caller
// must hold engine.Runtime.Launch.
func (v *Variable) replaceBuffers(fresh engine.Buffers) error {
	if v.buffers == nil {
		v.buffers = fresh
		v.pending.Store(nil)
		return nil
	}
	// Bound launches use the buffers' addresses until they detect a new generation.
	err := v.buffers.Close()
	copy(v.buffers, fresh)
	v.strategy.generation++
	return err
}

func (v *Variable) release() error {
	v.closed = true
	return v.buffers.Close()
}

// Close releases the variable's memory. Steps that use the variable then fail. A variable of a
// store cannot be closed separately: Close returns an [*Error], and the strategy's Close closes the
// variable.
func (v *Variable) Close() error {
	if v == nil || v.strategy == nil {
		return nil
	}
	s := v.strategy
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	s.mu.Lock()
	i := slices.Index(s.distributed, v)
	if i >= 0 {
		s.distributed = slices.Delete(s.distributed, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 && !v.closed {
		return fault.New(errkind.ValueError, v.subject(), "close the strategy", "belongs to a store")
	}
	return v.release()
}

// registerVariables adds variables to the variables that the strategy's Close releases. If the
// strategy is already closed, it closes the variables and returns an error.
func (s *TPUStrategy) registerVariables(all ...*Variable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.distributed = append(s.distributed, all...)
		return nil
	}
	errs := []error{errStrategyClosed}
	for _, v := range all {
		errs = append(errs, v.release())
	}
	return errors.Join(errs...)
}

// DistributedVariables returns the open variables that NewVariable created, and the variables that
// store training metrics, in the order of their creation.
func (s *TPUStrategy) DistributedVariables() []*Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.distributed), func(v *Variable) bool { return v.unlisted })
}

// checkOwnedBy returns an error if v is nil or belongs to another strategy. The error contains op,
// the name of the call.
func (v *Variable) checkOwnedBy(s *TPUStrategy, op string) error {
	if v == nil {
		return fault.New(errkind.TypeError, op, "give a variable of the strategy", "no variable")
	}
	if v.strategy != s {
		return fault.OtherStrategy(op, v.subject())
	}
	return nil
}
