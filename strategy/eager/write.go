package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Read returns the current value of the variable's component on this replica.
func (rc *ReplicaContext) Read(v *strategy.Variable) (any, error) {
	return rc.read("Read", v, rc.onHost)
}

// ReadAcross returns the variable's cross-replica value in replica code: it combines the components
// by the variable's aggregation. It corresponds to a read in TensorFlow's
// variable_sync_on_read_context.
func (rc *ReplicaContext) ReadAcross(v *strategy.Variable) (any, error) {
	return rc.read("ReadAcross", v, true)
}

func (rc *ReplicaContext) read(op string, v *strategy.Variable, across bool) (any, error) {
	m := engine.Internal(rc.strategy)
	if err := m.CheckOwned(op, v); err != nil {
		return nil, err
	}
	if mc := rc.tracing; mc != nil {
		return fault.CatchPanic(func() any {
			if across {
				return mc.Read(v).node
			}
			return mc.rc.Read(v)
		})
	}
	return rc.callCollective(op+" "+v.Path(), v, nil, func([]any) ([]any, error) {
		var x strategy.Value
		var err error
		if across {
			x, err = v.Read(rc.callerContext())
		} else {
			_, x, _, err = m.Resolve(rc.callerContext(), op, v)
		}
		if err == nil {
			x, err = rc.perReplica(x)
		}
		if err != nil {
			return nil, err
		}
		return Of(rc.strategy).splitByReplica(x)
	})
}

// Assign sets the variable and returns its new value, like [strategy.ReplicaContext.Assign] and
// TensorFlow's assign in a replica. A write to an [strategy.OnRead] variable only changes the
// replica's component. Writes to an [strategy.OnWrite] variable are aggregated over the replicas. A
// host value that is the same object on every replica counts as one value: its SUM is an error, and
// its MEAN is the value. If the dtype of the variable cannot represent a Go number, Assign returns
// an [*strategy.Error].
func (rc *ReplicaContext) Assign(v *strategy.Variable, x any) (any, error) {
	return rc.write(assign.Set, v, x)
}

// AssignAdd adds x to the variable and returns the new value, like [ReplicaContext.Assign].
func (rc *ReplicaContext) AssignAdd(v *strategy.Variable, x any) (any, error) {
	return rc.write(assign.Add, v, x)
}

// AssignSub subtracts x from the variable and returns the new value, like [ReplicaContext.Assign].
func (rc *ReplicaContext) AssignSub(v *strategy.Variable, x any) (any, error) {
	return rc.write(assign.Sub, v, x)
}

// checkWrite returns an error if the variable belongs to another strategy, or if the write would
// change only some of the components.
func (rc *ReplicaContext) checkWrite(op string, v *strategy.Variable) error {
	if rc.onSomeDevices {
		return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
			Reason: "called in an update of some of the devices, while a write is of all components",
			Hint:   "give the update all of NonSlotDevices, or write outside"}
	}
	return engine.Internal(rc.strategy).CheckOwned(op, v)
}

func (rc *ReplicaContext) write(w assign.Op, v *strategy.Variable, x any) (any, error) {
	if err := rc.checkWrite(w.Name, v); err != nil {
		return nil, err
	}
	op, call := fmt.Sprintf("%s %q", w.Name, v.Path()), w.Name+" "+v.Path()
	switch {
	case rc.onHost:
		return rc.writeAllComponents(call, v, func(ctx context.Context) error { return assignAllComponents(ctx, w, v, x) })
	case rc.tracing != nil:
		if err := rc.tracing.setComponent(op, w, v, x); err != nil {
			return nil, err
		}
		return rc.Read(v)
	}
	return rc.callCollective(call, v, rc.component(x), func(xs []any) ([]any, error) {
		value, isHost, release, err := rc.mergeWritten(op, v, xs)
		if err != nil {
			return nil, err
		}
		defer release()
		aggregate := !rc.inUpdate && !isHost
		return rc.applyWrite(fmt.Sprintf("replica_%s_%t", w.Name, aggregate), v, []strategy.Value{value},
			func(c *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				x := in[0]
				if aggregate {
					x = engine.Internal(c).AggregateWrite(op, v, x)
				}
				return []*graph.Node{engine.Internal(c).WriteVariable(op, v, x, w.Apply)}
			})
	})
}

// applyWrite writes the variable and returns its new value for each replica.
func (rc *ReplicaContext) applyWrite(name string, v *strategy.Variable, values []strategy.Value,
	step strategy.StepFunc) ([]any, error) {
	results, err := engine.Internal(rc.strategy).RunBuiltin(rc.callerContext(), name, step, values,
		[]*strategy.Variable{v}, rc.inUpdate && !componentsVary(v), v.Annotation())
	if err != nil {
		return nil, err
	}
	engine.Internal(results[0]).SetReplicaShapes(nil, !componentsVary(v))
	return Of(rc.strategy).splitByReplica(results[0])
}

// perReplica converts a mirrored value that replica code reads to a per-replica value, because each
// replica owns its copy.
func (rc *ReplicaContext) perReplica(x strategy.Value) (strategy.Value, error) {
	m, ok := x.(*strategy.Mirrored)
	if !ok || rc.inUpdate {
		return x, nil
	}
	defer m.Close()
	return rc.copyPerReplica(m)
}

// copyPerReplica copies a mirrored value to a per-replica value. The copy is still known to be
// equal on all replicas.
func (rc *ReplicaContext) copyPerReplica(m *strategy.Mirrored) (strategy.Value, error) {
	results, err := engine.Internal(rc.strategy).RunBuiltin(rc.callerContext(), "per_replica",
		func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		[]strategy.Value{m}, nil, false, m.Annotation())
	if err != nil {
		return nil, err
	}
	engine.Internal(results[0]).SetReplicaShapes(nil, true)
	return results[0], nil
}

// mergeWritten combines the values that the replicas write into one value. isHost reports that all
// replicas write the same host value, which aggregation does not change.
func (rc *ReplicaContext) mergeWritten(op string, v *strategy.Variable, xs []any) (value strategy.Value, isHost bool,
	release func(), err error) {
	s := rc.strategy
	converted := make([]any, len(xs))
	_, all := commonValue(xs)
	for r, x := range xs {
		if err = engine.Internal(s).CheckOwned(op, x); err != nil && !(all && engine.Internal(s).NeedsResolve(x)) {
			return nil, false, nil, err
		}
		if number.IsNumber(x) && v.Shape().Rank() == 0 {
			if x, err = number.Convert(op, x, v.Shape().DType); err != nil {
				return nil, false, nil, err
			}
		}
		converted[r] = x
	}
	object, one := commonValue(converted)
	isHost = one && isHostValue(object) && v.Synchronization() == strategy.OnWrite
	if !rc.inUpdate && v.Synchronization() == strategy.OnWrite && s.NumReplicasInSync() > 1 {
		switch {
		case v.Aggregation() == strategy.AggregateNone && !v.LocalWrites():
			return nil, false, nil, fault.NoAggregation(op)
		case v.Aggregation() == strategy.AggregateSum && isHost:
			return nil, false, nil, fault.NotDistributed(op)
		}
	}
	if value, release, err = rc.mergeValues(op, v, converted); err != nil {
		return nil, false, nil, err
	}
	if ragged := engine.Internal(value).ReplicaShapes(); ragged != nil || !value.Shape().Equal(v.Shape()) {
		shape := value.Shape().String()
		if ragged != nil {
			shape = fmt.Sprint(ragged)
		}
		release()
		return nil, false, nil, fault.New(errkind.ValueError, op, "give a value of its shape and dtype",
			"a value of shape %s for a variable of shape %s", shape, v.Shape())
	}
	return value, isHost, release, nil
}

// isHostValue reports whether a leaf is a value in host memory.
func isHostValue(x any) bool {
	switch x.(type) {
	case nil, strategy.Value, *strategy.Variable, Component, *strategy.Objects:
		return false
	}
	return true
}

// mergeValues combines the values that the replicas write into one value. In an update of a
// mirrored variable the values must be equal.
func (rc *ReplicaContext) mergeValues(op string, v *strategy.Variable, xs []any) (_ strategy.Value, release func(),
	err error) {
	if rc.inUpdate && !componentsVary(v) {
		if xs, err = rc.mirrorEqual(op, xs); err != nil {
			return nil, nil, err
		}
	}
	return Of(rc.strategy).mergeLeaves(rc.callerContext(), op, xs)
}

// mirrorEqual checks that an update writes equal values to all components of a mirrored variable.
// It returns the values, or an error if they differ.
func (rc *ReplicaContext) mirrorEqual(op string, xs []any) ([]any, error) {
	apart := func(c Component) { // compare its components
		for r := range xs {
			c.replica = r
			xs[r] = c
		}
	}
	switch object, one := commonValue(xs); of := object.(type) {
	case *strategy.Variable:
		if !componentsVary(of) {
			return xs, nil
		}
		apart(Component{variable: of})
	case strategy.Value:
		if !isVarying(of) {
			return xs, nil
		}
		apart(Component{value: of})
	default:
		if one {
			return xs, nil
		}
	}
	all := make([]*tensors.Tensor, len(xs))
	for _, r := range Of(rc.strategy).localReplicas() {
		var err error
		if all[r], err = rc.hostValue(xs[r]); err != nil {
			break
		}
	}
	first, err := Of(rc.strategy).equalOnAll(rc.callerContext(), op, all)
	switch {
	case err != nil:
		return nil, err
	case first == nil:
		return nil, fault.Unequal(op)
	}
	return slices.Repeat([]any{first}, len(xs)), nil
}

func (rc *ReplicaContext) hostValue(x any) (*tensors.Tensor, error) {
	if c, ok := x.(Component); ok {
		return c.Local(rc.ctx)
	}
	return hostdata.ToTensor(x)
}

func equalTensors(a, b *tensors.Tensor) bool {
	if a == b || !a.Shape().Equal(b.Shape()) {
		return a == b // ConstBytes locks the tensor, so a tensor is not compared with itself
	}
	equal := false
	_ = a.ConstBytes(func(x []byte) {
		_ = b.ConstBytes(func(y []byte) { equal = slices.Equal(x, y) })
	})
	return equal
}

// Update runs fn to update the variable once for all replicas, like [Extended.Update]. It is a
// collective call. The arguments of fn combine the arguments that the replicas pass.
func (rc *ReplicaContext) Update(v *strategy.Variable, fn UpdateFunc, args ...any) (any, error) {
	s := rc.strategy
	if err := engine.Internal(s).CheckOwned("Update", v); err != nil {
		return nil, err
	}
	if rc.tracing != nil {
		return Of(s).Update(rc.ctx, v, fn, args...)
	}
	return rc.callCollective("Update "+v.Path(), v, args, func(all []any) ([]any, error) {
		if rc.onHost {
			result, err := Of(s).Update(rc.callerContext(), v, fn, args...)
			return []any{result}, err
		}
		merged, err := Of(s).regroup(rc.callerContext(), "update", all, false)
		if err != nil {
			return nil, err
		}
		result, err := Of(s).Update(rc.callerContext(), v, fn, merged.([]any)...)
		if err != nil {
			return nil, err
		}
		return Of(s).splitByReplica(result)
	})
}

// NewVariable creates one variable for all replicas, with the initial value that replica 0 passes,
// like the creation of a variable in TensorFlow's Strategy.run. It is a collective call. All
// replicas must pass the same options. An initial value of type func() any is called once, for
// replica 0.
func (rc *ReplicaContext) NewVariable(initial any, opts strategy.VariableOptions) (*strategy.Variable, error) {
	if f, ok := initial.(func() any); ok {
		initial = nil
		if rc.replica == 0 {
			var err error
			if initial, err = errkind.CatchPanic("strategy: the initial value of variable "+opts.Name,
				func() (any, error) { return f(), nil }); err != nil {
				return nil, err
			}
		}
	}
	options := fmt.Sprintf("%v %v %v %v %v", opts.Trainable == nil || *opts.Trainable, opts.Synchronization,
		opts.Aggregation, opts.Annotation, opts.LocalWrites)
	subject := [2]any{options, opts.ColocateWith}
	v, err := rc.callCollective("NewVariable "+opts.Name, subject, initial, func(all []any) ([]any, error) {
		first, release, err := rc.firstInitialValue(all)
		if err != nil {
			return nil, err
		}
		defer release()
		v, err := rc.strategy.NewVariable(rc.callerContext(), first, opts)
		if err != nil {
			return nil, err
		}
		return slices.Repeat([]any{v}, len(all)), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*strategy.Variable), nil
}

// firstInitialValue returns the initial value that replica 0 passes. If only the process of replica
// 0 has the tensor, it is copied to the other processes through the devices.
func (rc *ReplicaContext) firstInitialValue(all []any) (first any, release func(), err error) {
	release = func() {}
	s := rc.strategy
	if s.NumProcesses() < 2 {
		return all[0], release, nil
	}
	var shape shapes.Shape
	var mine *tensors.Tensor
	if x, ok := all[0].(*remoteLeaf); ok {
		if shape = x.shape; !shape.Ok() {
			return nil, nil, fault.New(errkind.TypeError, "NewVariable", "pass a tensor or a number",
				"the initial value of replica 0 is not a tensor")
		}
	} else {
		leaves, err := describeLeaves("NewVariable", all[0])
		if err != nil || len(leaves) != 1 || leaves[0].Kind != tensorLeaf {
			return all[0], release, err
		}
		shape = leaves[0].shape()
		if mine, err = hostdata.ToTensor(all[0]); err != nil {
			return nil, nil, err
		}
	}
	values, zero := make([]*tensors.Tensor, len(all)), tensors.FromShape(shape)
	for _, r := range Of(s).localReplicas() {
		values[r] = zero
	}
	if mine != nil {
		values[0] = mine
	}
	v, err := engine.Internal(s).NewPerReplica(rc.callerContext(), values, slices.Repeat([]shapes.Shape{shape},
		len(all)), logical.Annotation{})
	if err != nil {
		return nil, nil, err
	}
	return Component{value: v}, func() { _ = v.Close() }, nil
}

// isVarying reports whether the value may differ between replicas.
func isVarying(v strategy.Value) bool {
	switch v := v.(type) {
	case *strategy.PerReplica:
		return !v.Mirrored()
	case *strategy.StackedBatches:
		return true
	}
	return false
}

func componentsVary(v *strategy.Variable) bool {
	return v.Synchronization() == strategy.OnRead || v.LocalWrites()
}
