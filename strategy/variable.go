package strategy

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Variable is a variable on the devices of a strategy: TensorFlow's tf.Variable made inside the
// scope. It has a component for each replica, split over the replica's logical devices. The
// components of an [OnWrite] variable are equal; an [OnRead] variable has a component of its own on
// each replica. Steps update it in place. Its methods are safe for concurrent use.
type Variable struct {
	strategy   *TPUStrategy
	path       string
	dtype      dtypes.DType
	shape      []int
	annotation logical.Annotation
	// over says along which dimension each replica holds a part of the variable.
	over      spmd.ReplicaShard
	trainable bool

	synchronization VariableSynchronization
	aggregation     VariableAggregation
	// localWrites lets replicas write their components apart. Such a variable and an OnRead one are
	// stored per replica: the compiler takes what is stored mirrored for equal everywhere.
	localWrites bool
	column      int
	// unlisted variables are the state of a package of this module: see [innerStrategy.State].
	unlisted bool

	buffers mesh.Buffers // guarded by machine.Launch, as is closed
	closed  bool
	// waiting are those of the store whose value has yet to arrive in the buffers, which are nil
	// then.
	waiting atomic.Pointer[Variables]
	// constant is the value of a large constant that is not in the buffers yet, otherwise nil.
	constant atomic.Pointer[hostConstant]
}

// Path returns the variable's path in its store, or the name that NewVariable gave it.
func (v *Variable) Path() string { return v.path }

// ComponentName returns the name of a replica's component: the variable's name for replica 0, and
// the name with "/replica_1" and so on for the others.
func (v *Variable) ComponentName(replica int) string {
	if replica == 0 {
		return v.path
	}
	return fmt.Sprintf("%s/replica_%d", v.path, replica)
}

// Shape returns the dtype and the dimensions of the whole variable.
func (v *Variable) Shape() shapes.Shape { return shapes.Make(v.dtype, v.shape...) }

// Annotation returns how the variable is split over the logical devices.
func (v *Variable) Annotation() logical.Annotation { return v.annotation }

// Trainable reports whether optimizers change the variable.
func (v *Variable) Trainable() bool { return v.trainable }

// Synchronization returns [OnWrite] or [OnRead].
func (v *Variable) Synchronization() VariableSynchronization { return v.synchronization }

// Aggregation returns how the replicas' values are combined.
func (v *Variable) Aggregation() VariableAggregation { return v.aggregation }

// LocalWrites reports whether the replicas may write different values to their components.
func (v *Variable) LocalWrites() bool { return v.localWrites }

// Strategy returns the strategy that the variable belongs to.
func (v *Variable) Strategy() *TPUStrategy { return v.strategy }

// BytesPerDevice returns the number of bytes of the variable that each device holds.
func (v *Variable) BytesPerDevice() int {
	l, err := v.layout()
	if err != nil { // which the making of the variable has said
		return 0
	}
	return l.PartBytes
}

// String describes the variable without reading it.
func (v *Variable) String() string {
	return fmt.Sprintf("Variable(%q, %s%v, %s, %s, %s)", v.path, v.dtype, v.shape, v.synchronization, v.aggregation, v.annotation)
}

// perReplica reports whether the components are stored as different values.
func (v *Variable) perReplica() bool { return v.synchronization == OnRead || v.localWrites }

// key is equal for variables that one compiled program can serve in turn.
func (v *Variable) key() string {
	return fmt.Sprintf("%s%v %s %s %s %t %v", v.dtype, v.shape, v.annotation, v.synchronization, v.aggregation, v.localWrites, v.over)
}

// value is the variable's tensor as a distributed value without buffers.
func (v *Variable) value() *deviceValue {
	return &deviceValue{strategy: v.strategy, dtype: v.dtype, shape: v.shape, annotation: v.annotation, perReplica: v.perReplica(), over: v.over}
}

// layout is how the variable lies on the devices.
func (v *Variable) layout() (*mesh.Layout, error) {
	l, err := v.value().layout()
	return l, v.failed(err)
}

// subject names the variable in errors.
func (v *Variable) subject() string { return fmt.Sprintf("variable %q", v.path) }

// failed is the error of an operation of the variable that failed for a cause, nil without one.
func (v *Variable) failed(cause error) error {
	if cause == nil {
		return nil
	}
	return fault.Of(v.subject(), cause, "")
}

// live is called under machine.Launch.
func (v *Variable) live() error {
	if err := v.strategy.check(); err != nil {
		return err
	}
	if v.closed {
		return closed("variable %q", v.path)
	}
	return nil
}

// load returns the loading of a value in parts.
func (v *Variable) load(from lazy.Parts) (*mesh.Load, error) {
	if shape := from.Shape(); !shape.Equal(v.Shape()) {
		return nil, fault.New(errkind.ValueError, v.subject(), "give parts of its shape and dtype", "parts of %s for a variable of %s", shape, v.Shape())
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	return &mesh.Load{Name: v.subject(), Layout: l, From: from}, nil
}

// swap gives a live variable other buffers, and closes those that it has. It is called under
// machine.Launch.
func (v *Variable) swap(fresh mesh.Buffers) error {
	if v.buffers == nil {
		v.buffers = fresh
		v.waiting.Store(nil)
		return nil
	}
	// Binding launches hold the buffers' addresses until they see a new generation.
	err := v.buffers.Close()
	copy(v.buffers, fresh)
	v.strategy.generation++
	return err
}

func (v *Variable) free() error {
	v.closed = true
	return v.buffers.Close()
}

// Close releases the variable's memory. Steps that use the variable fail from now on. The variables
// of a store close with the strategy: for such a variable Close returns an [*Error]. A second Close
// does nothing.
func (v *Variable) Close() error {
	if v == nil || v.strategy == nil {
		return nil
	}
	s := v.strategy
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	s.mu.Lock()
	i := slices.Index(s.own, v)
	if i >= 0 {
		s.own = slices.Delete(s.own, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 && !v.closed {
		return fault.New(errkind.ValueError, v.subject(), "close the strategy", "belongs to a store")
	}
	return v.free()
}

// ownVariables makes variables those of the strategy, whose Close closes them. If that came before,
// they are closed now.
func (s *TPUStrategy) ownVariables(all ...*Variable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.own = append(s.own, all...)
		return nil
	}
	errs := []error{ErrClosed}
	for _, v := range all {
		errs = append(errs, v.free())
	}
	return errors.Join(errs...)
}

// DistributedVariables returns the variables that NewVariable made and that were not closed, in the
// order in which they were made. [Variables] has the variables of stores.
func (s *TPUStrategy) DistributedVariables() []*Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.own), func(v *Variable) bool { return v.unlisted })
}

// ownsVariable refuses no variable, and those of another strategy.
func (v *Variable) ownedBy(s *TPUStrategy, op string) error {
	if v == nil {
		return fault.New(errkind.TypeError, op, "give a variable of the strategy", "no variable")
	}
	if v.strategy != s {
		return fault.OtherStrategy(op, v.subject())
	}
	return nil
}
