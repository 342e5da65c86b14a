package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Writes and reads of a variable from outside the replicas: from the host, from a merge call, from
// an update. Nothing is aggregated on such a write.

// Assign gives all components of the variable a new value, of the variable's shape and dtype:
// TensorFlow's assign outside the replicas. The value is a host value, a *[Mirrored], a
// *[Component], another *Variable (also of another strategy, if that has all devices of this one),
// or a *[PerReplica] if the components may differ (see [VariableOptions.LocalWrites]) or if its
// parts are known to be equal. A Go number takes the dtype of a scalar variable; a number that does
// not fit the dtype, such as 2.5 or 1e10 for an Int32, is an [*Error].
//
// An [OnRead] variable that is summed on read receives the value divided by the number of replicas,
// so that a read gives the value back; for integers the division truncates.
func (v *Variable) Assign(ctx context.Context, value any) error {
	return v.write(ctx, assign.Set, value)
}

// AssignAdd adds to all components: TensorFlow's assign_add outside the replicas. For an [OnRead]
// variable that is summed on read it returns an [*Error], because a total does not say which
// component grows.
func (v *Variable) AssignAdd(ctx context.Context, value any) error {
	return v.write(ctx, assign.Add, value)
}

// AssignSub subtracts from all components, like [Variable.AssignAdd]: TensorFlow's assign_sub.
func (v *Variable) AssignSub(ctx context.Context, value any) error {
	return v.write(ctx, assign.Sub, value)
}

func (v *Variable) crossWrite(ctx context.Context, w assign.Op, value any) error {
	op := fmt.Sprintf("%s %q", w.Name, v.path)
	if err := v.crossUse(ctx, op); err != nil {
		return err
	}
	if v.synchronization == OnRead && v.aggregation == AggregateSum && w.Name != assign.Set.Name {
		return fault.New(ValueError, op, "assign a total, or write in the replicas",
			"a variable that is summed on read has no one component to change")
	}
	summed := v.synchronization == OnRead && v.aggregation == AggregateSum
	if summed {
		if err := number.CheckTraced(op, v.dtype); err != nil {
			return err
		}
	}
	source, made, err := v.operand(ctx, op, value)
	if err != nil {
		return err
	}
	if tensor, ok := source.(*tensors.Tensor); ok {
		if w.Name == assign.Set.Name && (v.synchronization == OnWrite || v.aggregation != AggregateSum) {
			return v.replace(ctx, op, tensor)
		}
		m, err := v.strategy.Mirror(ctx, tensor, v.annotation)
		if err != nil {
			return err
		}
		source, made = m, m
	}
	if made != nil {
		defer made.Close()
	}
	_, err = v.strategy.call(ctx, builtinCall{
		name: w.Name, values: []Value{source.(Value)}, variables: []*Variable{v},
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			x := in[0]
			if summed {
				x = share(x, rc.strategy.replicas)
			}
			rc.set(op, held[0], x, w.Apply)
			return nil
		},
	})
	return err
}

// eagerUse refuses a read of the variable where a step is traced.
func (v *Variable) eagerUse(ctx context.Context, doing string) error {
	return RefuseTracing(ctx, fmt.Sprintf("%s %q", doing, v.path), "use MergeContext.Read, ReplicaContext.Read or UpdateContext.Read")
}

// crossUse refuses a use from a replica's code and from other strategies' scopes.
func (v *Variable) crossUse(ctx context.Context, op string) error {
	if m, ok := modeOf(ctx); ok && m.strategy == v.strategy && m.update >= 0 {
		return nil
	}
	if err := v.strategy.requireOwn(ctx, op, fmt.Sprintf("variable %q", v.path)); err != nil {
		return err
	}
	return v.strategy.requireCross(ctx, op)
}

// operand checks what is written: the result is a *tensors.Tensor of the variable's shape, or a
// Value. made is a Value that the caller closes.
func (v *Variable) operand(ctx context.Context, op string, value any) (source any, made Value, err error) {
	other, isVariable := value.(*Variable)
	if isVariable = isVariable && other != nil && other.strategy == v.strategy; !isVariable && v.strategy.lifts(value) {
		t, err := v.strategy.take(ctx, op, value)
		switch {
		case err != nil:
			return nil, nil, err
		case t.value == nil:
			value = t.host
		default:
			value = t.value
			if t.made {
				made = t.value
			}
		}
	}
	if isVariable {
		// A mirrored variable takes components, as of any distributed value.
		if v.synchronization == OnRead || other.synchronization == OnRead && v.strategy.replicas == 1 {
			made, err = asValue(other.Read(ctx))
		} else {
			made, err = other.snapshot(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
		value = made
	}
	x, ok := value.(Value)
	if !ok {
		tensor, err := v.hostValue(op, value)
		return tensor, nil, err
	}
	fail := func(err error) (any, Value, error) {
		if made != nil {
			err = errors.Join(err, made.Close())
		}
		return nil, nil, err
	}
	if isNil(x) {
		return fail(fault.New(TypeError, op, "give a value", "no value"))
	}
	if err := v.strategy.owns(x); err != nil {
		return fail(err)
	}
	base := x.base()
	if base.differs() {
		switch {
		case v.synchronization == OnRead:
			return fail(fault.New(TypeError, op, "write it in the replicas", "a PerReplica value for a variable that is combined on read"))
		case v.aggregation != AggregateNone && v.strategy.opts.Semantics != TensorFlowMirrored:
			return fail(fault.New(TypeError, op, "reduce it first", "a PerReplica value where one for all replicas is expected"))
		case !v.localWrites:
			return fail(fault.New(TypeError, op, "reduce it first, or create the variable with LocalWrites", "a PerReplica value for a mirrored variable"))
		}
	}
	if base.ragged != nil || !base.Shape().Equal(v.Shape()) {
		return fail(fault.New(ValueError, op, "give a value of its shape and dtype", "a value of shape %s for a variable of shape %s", base.Shape(), v.Shape()))
	}
	return x, made, nil
}

// hostValue is a host value in the variable's dtype: Go numbers convert if they fit.
func (v *Variable) hostValue(op string, value any) (*tensors.Tensor, error) {
	if number.Is(value) && len(v.shape) == 0 {
		var err error
		if value, err = number.As(op, value, v.dtype); err != nil {
			return nil, err
		}
	}
	t, err := takeHost(op, value)
	if err != nil {
		return nil, err
	}
	if !t.Shape().Equal(v.Shape()) {
		return nil, fault.New(ValueError, op, "give a value of its shape and dtype", "a value of shape %s for a variable of shape %s", t.Shape(), v.Shape())
	}
	return t, nil
}

// replace uploads a value to all components.
func (v *Variable) replace(ctx context.Context, op string, value *tensors.Tensor) error {
	s := v.strategy
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	if err := v.live(); err != nil {
		return err
	}
	if err := v.upload(ctx, value); err != nil {
		return fault.Of(op, err, "")
	}
	return nil
}

// Read returns the variable's value across replicas, on the devices: the value of an [OnWrite]
// variable, and the components of an [OnRead] variable combined as its aggregation says. For an
// OnRead variable that aggregates nothing it returns an [*Error] of kind ValueError. The value is
// the caller's.
//
// With the context of an update, [eager.UpdateContext.Context], Read returns the component that the
// update is for.
func (v *Variable) Read(ctx context.Context) (*Mirrored, error) {
	if err := v.eagerUse(ctx, "read"); err != nil {
		return nil, err
	}
	if c := v.updater(ctx); c != nil && v.perReplica() {
		return v.componentAs(ctx, c.Number(), v.annotation)
	}
	return v.readAs(ctx, v.annotation)
}

// readAs is Read with the value split over the logical devices as a says.
func (v *Variable) readAs(ctx context.Context, a logical.Annotation) (*Mirrored, error) {
	op := fmt.Sprintf("read %q", v.path)
	if err := v.crossUse(ctx, op); err != nil {
		return nil, err
	}
	if v.synchronization == OnRead && v.aggregation == AggregateNone {
		_, err := v.aggregation.ReduceOp()
		return nil, err
	}
	if v.synchronization == OnRead && v.aggregation != AggregateFirst && v.strategy.replicas > 1 {
		if err := number.Check(op, v.dtype); err != nil {
			return nil, err
		}
	}
	results, err := v.strategy.call(ctx, builtinCall{
		name: "read", variables: []*Variable{v}, mirrored: true, results: one(a),
		step: func(rc *ReplicaContext, held []*captured, _ []*graph.Node) []*graph.Node {
			switch {
			case rc.strategy.replicas == 1:
			case v.synchronization == OnRead && v.aggregation != AggregateFirst:
				reduction, _ := v.aggregation.ReduceOp()
				return []*graph.Node{reduceOutside(reduction, held[0].now, rc.strategy.replicas)}
			case v.perReplica():
				return []*graph.Node{rc.first(held[0].now)}
			}
			return []*graph.Node{held[0].now}
		},
	})
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}

// Value copies the variable's value across replicas to the host, the value that [Variable.Read]
// returns. It waits for the steps under way.
//
// With several processes, all processes call Value at the same point: a variable whose parts or
// components are spread over processes is gathered on the devices first.
func (v *Variable) Value(ctx context.Context) (*tensors.Tensor, error) {
	if err := v.eagerUse(ctx, "value of"); err != nil {
		return nil, err
	}
	if c := v.updater(ctx); c != nil && v.perReplica() {
		return v.componentValue(ctx, c.Number())
	}
	return v.combined(ctx)
}

// combined is Value in every context: the components combined.
func (v *Variable) combined(ctx context.Context) (*tensors.Tensor, error) {
	everywhere := v.strategy.everywhere(v.perReplica() || v.over.Is(), v.annotation)
	if v.synchronization == OnWrite && everywhere {
		if err := v.crossUse(ctx, fmt.Sprintf("read %q", v.path)); err != nil {
			return nil, err
		}
		return v.Local(ctx, 0)
	}
	a := v.annotation
	if !v.strategy.everywhere(false, a) {
		a = logical.Replicated()
	}
	m, err := v.readAs(ctx, a)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Value(ctx)
}

// snapshot copies the components on the devices.
func (v *Variable) snapshot(ctx context.Context) (Value, error) {
	results, err := v.strategy.call(ctx, builtinCall{
		name: "snapshot", variables: []*Variable{v}, mirrored: !v.perReplica(), results: one(v.annotation),
		step: func(_ *ReplicaContext, held []*captured, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{held[0].now}
		},
	})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// SaveValue returns what a checkpoint holds of the variable: the value of an [OnWrite] variable
// once, from replica 0, and the combined components of an [OnRead] variable. For an OnRead variable
// that aggregates nothing it returns an [*Error] of kind ValueError.
func (v *Variable) SaveValue(ctx context.Context) (*tensors.Tensor, error) {
	if err := v.eagerUse(ctx, "save"); err != nil {
		return nil, err
	}
	return v.combined(ctx)
}

// RestoreValue writes a checkpoint's value back to all components, on any number of replicas. The
// components of an [OnRead] variable that is summed share the value equally. Integer shares
// truncate, as in TensorFlow: 7 on 2 replicas reads back as 6.
func (v *Variable) RestoreValue(ctx context.Context, saved *tensors.Tensor) error {
	if err := RefuseTracing(ctx, fmt.Sprintf("restore %q", v.path), fault.InsteadOfMeeting); err != nil {
		return err
	}
	if v.synchronization == OnRead && v.aggregation == AggregateNone {
		_, err := v.aggregation.ReduceOp()
		return err
	}
	return v.crossWrite(ctx, assign.Set, saved)
}
