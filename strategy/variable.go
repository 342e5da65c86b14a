package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/lazy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
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
	over       spmd.Over
	shardBytes int
	trainable  bool

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
}

// VariableOptions describe a variable. The zero value is a trainable mirrored variable that
// replicas cannot write.
type VariableOptions struct {
	// Name is the variable's name; "Variable" if empty. The components are called Name,
	// Name/replica_1 and so on. Two variables may have one name; a checkpoint or a saved step,
	// which finds variables by name, then refuses them.
	Name string
	// Trainable says whether optimizers change the variable. Nil means true for an OnWrite variable
	// and false for an OnRead variable.
	Trainable       *bool
	Synchronization VariableSynchronization
	Aggregation     VariableAggregation
	// Annotation splits the variable over the logical devices. If it is zero, the rules of
	// [Options.Variables] decide by the name.
	Annotation logical.Annotation
	// LocalWrites lets each replica write its own component of an OnWrite variable that aggregates
	// nothing, and lets PerReplica values be written to its components. The components may then
	// differ, and a read across replicas returns that of replica 0. Without LocalWrites such writes
	// are errors.
	LocalWrites bool
	// ColocateWith puts the variable where another variable is: on its logical device and, if both
	// have one shape and the Annotation is zero, split in the same way.
	ColocateWith *Variable
}

// NewVariable makes a variable with the same first value on each replica: TensorFlow's tf.Variable
// inside the scope. initial is a host value, a distributed value that is the same on all replicas,
// a component, another variable, or a func() any that returns one of these, which is called once.
//
// Errors: *[Error] of kind ValueError for options that do not fit, [*ContextError] in replica code,
// [*PanicError] if the function panics.
func (s *TPUStrategy) NewVariable(ctx context.Context, initial any, opts VariableOptions) (*Variable, error) {
	name := opts.Name
	if name == "" {
		name = "Variable"
	}
	op := fmt.Sprintf("variable %q", name)
	if err := s.requireEager(ctx, op, fault.InsteadOfMaking); err != nil {
		return nil, err
	}
	return s.newVariable(ctx, op, name, initial, opts)
}

func (s *TPUStrategy) newVariable(ctx context.Context, op, name string, initial any, opts VariableOptions) (*Variable, error) {
	switch opts.Synchronization {
	case SyncAuto:
		opts.Synchronization = OnWrite
	case SyncNone:
		return nil, fault.New(ValueError, op, "use OnWrite or OnRead", "synchronization NONE has no meaning on several replicas")
	case OnWrite, OnRead:
	default:
		return nil, fault.New(ValueError, op, "use OnWrite or OnRead", "unknown synchronization %s", opts.Synchronization)
	}
	if opts.Aggregation < AggregateNone || opts.Aggregation > AggregateFirst {
		return nil, fault.New(ValueError, op, "use AggregateNone, AggregateSum, AggregateMean or AggregateFirst", "unknown aggregation %s", opts.Aggregation)
	}
	if f, ok := initial.(func() any); ok {
		var err error
		if initial, err = guarded("the initial value of "+op, func() (any, error) { return f(), nil }); err != nil {
			return nil, err
		}
	}
	value, err := operandOf(initial).resolveHost(ctx, s, op)
	if err != nil {
		return nil, &Error{Op: "strategy: " + op, Reason: fmt.Sprintf("initial value of type %T", initial), Err: err, Class: errkind.Or(err, TypeError)}
	}
	place := mode.PlaceOf(ctx)
	v := &Variable{
		strategy: s, path: name, dtype: value.DType(), shape: slices.Clone(value.Shape().Dimensions), annotation: opts.Annotation,
		synchronization: opts.Synchronization, aggregation: opts.Aggregation, localWrites: opts.LocalWrites,
		trainable: opts.Synchronization == OnWrite, column: place.LogicalDevice,
	}
	if opts.Trainable != nil {
		v.trainable = *opts.Trainable
	}
	other := opts.ColocateWith
	if other == nil {
		other, _ = place.Beside.(*Variable)
	}
	if other != nil {
		if other.strategy != s {
			return nil, fault.New(ValueError, op, "give a variable of this strategy", "colocated with variable %q of another strategy", other.path)
		}
		v.column = other.column
		if v.annotation.Kind() == logical.None && slices.Equal(v.shape, other.shape) {
			v.annotation = other.annotation
		}
	}
	if opts.Aggregation == AggregateMean && !v.dtype.IsFloat() && !v.dtype.IsComplex() {
		return nil, fault.New(ValueError, op, "use a float dtype or another aggregation", "aggregation MEAN of dtype %s, which has no fractions", v.dtype)
	}
	if v.annotation.Kind() == logical.None {
		v.annotation, _ = s.opts.Variables.For(s.axes, name, v.shape) // whole on each replica
	}
	if v.annotation.Kind() == logical.None && v.column > 0 {
		v.annotation = logical.AssignTo(v.column)
	}
	if err := v.annotation.ValidateOn(s.axes, name, v.shape); err != nil {
		return nil, &Error{Op: "strategy: " + op, Reason: "its annotation does not fit", Err: err, Class: ValueError}
	}
	if err := v.upload(ctx, value); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, v.free())
	}
	s.own = append(s.own, v)
	s.rules.Mark(s.opts.Variables, name, v.shape)
	return v, nil
}

// DistributedVariables returns the variables that NewVariable made and that were not closed, in the
// order in which they were made. [Variables] has the variables of stores.
func (s *TPUStrategy) DistributedVariables() []*Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.own), func(v *Variable) bool { return v.unlisted })
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
func (v *Variable) BytesPerDevice() int { return v.shardBytes }

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
func (v *Variable) value() *distributed {
	return &distributed{strategy: v.strategy, dtype: v.dtype, shape: v.shape, annotation: v.annotation, perReplica: v.perReplica(), over: v.over}
}

// layout is how the variable lies on the devices.
func (v *Variable) layout() (*mesh.Layout, error) {
	return v.value().layout()
}

// Local waits for the steps under way and copies one replica's component to the host.
func (v *Variable) Local(ctx context.Context, replica int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, fmt.Sprintf("read %q", v.path), fault.InsteadOfReading); err != nil {
		return nil, err
	}
	s := v.strategy
	if replica < 0 || replica >= s.replicas {
		return nil, fault.New(ValueError, fmt.Sprintf("variable %q", v.path), "count from 0", "replica %d of %d", replica, s.replicas)
	}
	if err := arrive(ctx, v); err != nil {
		return nil, err
	}
	// A step that is launched now would donate the buffers that are read.
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	if err := v.live(); err != nil {
		return nil, err
	}
	value, err := v.value().download(ctx, v.buffers, replica)
	if err != nil {
		return nil, fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	return value, nil
}

// LocalPart copies what one logical device of a replica holds of the variable to the host: its part
// of a variable that is split or sharded over the replicas, without padding, otherwise the whole
// variable.
func (v *Variable) LocalPart(ctx context.Context, replica, logicalDevice int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, fmt.Sprintf("read %q", v.path), fault.InsteadOfReading); err != nil {
		return nil, err
	}
	s := v.strategy
	d := replica*s.logicalDevices + logicalDevice
	if replica < 0 || replica >= s.replicas || logicalDevice < 0 || logicalDevice >= s.logicalDevices {
		return nil, fault.New(ValueError, fmt.Sprintf("variable %q", v.path), "count from 0", "replica %d of %d, logical device %d of %d",
			replica, s.replicas, logicalDevice, s.logicalDevices)
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	if err := arrive(ctx, v); err != nil {
		return nil, err
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	if err := v.live(); err != nil {
		return nil, err
	}
	if v.buffers[d] == nil {
		return nil, s.remote(d)
	}
	_, sizes := l.At(d)
	part := tensors.FromShape(shapes.Make(v.dtype, sizes...))
	var failed error
	err = part.MutableBytes(func(data []byte) { failed = s.machine.GetPart(ctx, l, v.buffers, d, data) })
	if err = cmp.Or(failed, err); err != nil {
		return nil, fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	return part, nil
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

// Ready waits until the steps under way have computed the variable everywhere.
func (v *Variable) Ready(ctx context.Context) error {
	if Tracing(ctx) { // first, as the text costs allocations
		return RefuseTracing(ctx, fmt.Sprintf("wait for %q", v.path), fault.InsteadOfWaiting)
	}
	if err := arrive(ctx, v); err != nil {
		return err
	}
	v.strategy.machine.Launch.Lock()
	defer v.strategy.machine.Launch.Unlock()
	if err := ready(ctx, v.buffers); err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	return nil
}

// upload copies a value to all components. It waits for the launch lock only if the variable lives
// already.
func (v *Variable) upload(ctx context.Context, value *tensors.Tensor) error {
	if p := lazy.PartsOf(value); p != nil {
		load, err := v.load(p)
		if err != nil {
			return err
		}
		v.shardBytes = load.Layout.PartBytes
		if _, err := v.strategy.machine.Fill(ctx, []*mesh.Load{load}, 1); err != nil {
			return err
		}
		return v.swap(load.Into)
	}
	s := v.strategy
	l, err := v.layout()
	if err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	fresh := s.machine.Buffers()
	if err := s.upload(ctx, l, func(_ int, use func([]byte)) error { return value.ConstBytes(use) }, fresh); err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	v.shardBytes = l.PartBytes
	return v.swap(fresh)
}

// load returns the loading of a value in parts.
func (v *Variable) load(from lazy.Parts) (*mesh.Load, error) {
	name := fmt.Sprintf("variable %q", v.path)
	if shape := from.Shape(); !shape.Equal(v.Shape()) {
		return nil, fault.New(ValueError, name, "give parts of its shape and dtype", "parts of %s for a variable of %s", shape, v.Shape())
	}
	l, err := v.layout()
	if err != nil {
		return nil, fault.Of(name, err, "")
	}
	return &mesh.Load{Name: name, Layout: l, From: from}, nil
}

// swap gives a live variable other buffers, and closes those that it has. It is called under
// machine.Launch.
func (v *Variable) swap(fresh mesh.Buffers) error {
	if v.buffers == nil {
		v.buffers = fresh
		v.waiting.Store(nil)
		return nil
	}
	// Bound launches hold the buffers' addresses until they see a new generation.
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
		return fault.New(ValueError, fmt.Sprintf("variable %q", v.path), "close the strategy", "belongs to a store")
	}
	return v.free()
}
