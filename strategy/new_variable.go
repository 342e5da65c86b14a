package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/logical"
)

// VariableOptions configure a variable. The zero value is a trainable mirrored variable that
// replicas cannot write.
type VariableOptions struct {
	// Name is "Variable" by default. Several variables may have the same name, but checkpoints and
	// step files require different names.
	Name string
	// Trainable selects whether optimizers change the variable. Nil means true for OnWrite
	// variables.
	Trainable       *bool
	Synchronization VariableSynchronization
	Aggregation     VariableAggregation
	// Annotation splits the variable over the logical devices. If it is zero, the rules of
	// [Options].Variables apply to Name.
	Annotation logical.Annotation
	// LocalWrites lets each replica write its own component of an OnWrite variable with
	// AggregateNone, and accepts PerReplica values in writes. A cross-replica read returns the
	// component of replica 0.
	LocalWrites bool
	// ColocateWith places the variable on the logical device of another variable. If both have the
	// same shape and Annotation is zero, the variable also has the other's split.
	ColocateWith *Variable
}

// NewVariable creates a variable with the same initial value on each replica, like TensorFlow's
// tf.Variable. initial is a host value, a distributed value that is the same on all replicas, a
// component, another variable, or a func() any that returns one of these and is called once.
//
// NewVariable returns an *[Error] of kind ValueError for invalid options, [ErrContext] in replica
// code, and an [*errkind.PanicError] if the function panics.
func (s *TPUStrategy) NewVariable(ctx context.Context, initial any, opts VariableOptions) (*Variable, error) {
	name := opts.Name
	if name == "" {
		name = "Variable"
	}
	op := fmt.Sprintf("variable %q", name)
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	if err := s.requireEager(ctx, op, fault.InsteadOfMaking); err != nil {
		return nil, err
	}
	switch opts.Synchronization {
	case SyncAuto:
		opts.Synchronization = OnWrite
	case SyncNone:
		return nil, fault.New(errkind.ValueError, op, "use OnWrite or OnRead",
			"synchronization NONE has no meaning on several replicas")
	case OnWrite, OnRead:
	default:
		return nil, fault.New(errkind.ValueError, op, "use OnWrite or OnRead", "unknown synchronization %s",
			opts.Synchronization)
	}
	if opts.Aggregation < AggregateNone || opts.Aggregation > AggregateFirst {
		return nil, fault.New(errkind.ValueError, op, "use AggregateNone, AggregateSum, AggregateMean or AggregateFirst",
			"unknown aggregation %s", opts.Aggregation)
	}
	if f, ok := initial.(func() any); ok {
		var err error
		if initial, err = errkind.CatchPanic("strategy: the initial value of "+op, func() (any, error) {
			return f(),
				nil
		}); err != nil {
			return nil, err
		}
	}
	value, err := operandOf(initial).resolveHost(ctx, s, op)
	if err != nil {
		return nil, &Error{Op: "strategy: " + op, Reason: fmt.Sprintf("initial value of type %T", initial),
			Err: err, Class: errkind.KindOr(err, errkind.TypeError)}
	}
	place := mode.PlaceFromContext(ctx)
	v := &Variable{
		strategy: s, path: name, dtype: value.DType(), shape: slices.Clone(value.Shape().Dimensions),
		annotation:      opts.Annotation,
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
			return nil, fault.New(errkind.ValueError, op, "give a variable of this strategy",
				"colocated with variable %q of another strategy", other.path)
		}
		v.column = other.column
		if v.annotation.Kind() == logical.KindNone && slices.Equal(v.shape, other.shape) {
			v.annotation = other.annotation
		}
	}
	if opts.Aggregation == AggregateMean && !v.dtype.IsFloat() && !v.dtype.IsComplex() {
		return nil, fault.New(errkind.ValueError, op, "use a float dtype or another aggregation",
			"aggregation MEAN of dtype %s, which has no fractions", v.dtype)
	}
	if v.annotation.Kind() == logical.KindNone {
		v.annotation, _ = s.opts.Variables.AnnotationFor(s.axes, name, v.shape) // not sharded over the replicas
	}
	if v.annotation.Kind() == logical.KindNone && v.column > 0 {
		v.annotation = logical.AssignTo(v.column)
	}
	if err := v.annotation.ValidateOn(s.axes, name, v.shape); err != nil {
		return nil, &Error{Op: "strategy: " + op, Reason: "its annotation does not fit", Err: err,
			Class: errkind.ValueError}
	}
	if v.buffers, err = v.uploadValue(ctx, value); err != nil {
		return nil, err
	}
	if err := s.registerVariables(v); err != nil {
		return nil, err
	}
	s.rules.Record(s.opts.Variables, name, v.shape)
	return v, nil
}
