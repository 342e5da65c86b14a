package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Read returns the replica's component of a variable as it is now.
func (rc *EagerContext) Read(v *Variable) (any, error) {
	if err := rc.strategy.ownsVariable("Read", v); err != nil {
		return nil, err
	}
	if rc.tracing != nil {
		return rc.tracing.read(v, false)
	}
	return rc.join("Read "+v.path, nil, func([]any) ([]any, error) {
		x, err := v.snapshot(rc.outer())
		if err != nil {
			return nil, err
		}
		if x, err = rc.apart(x); err != nil {
			return nil, err
		}
		return rc.strategy.split(x)
	})
}

// ReadAcross returns the variable's value across replicas, in a replica's code: its
// components combined as the aggregation says. It is what TensorFlow's
// variable_sync_on_read_context makes of a read.
func (rc *EagerContext) ReadAcross(v *Variable) (any, error) {
	if err := rc.strategy.ownsVariable("ReadAcross", v); err != nil {
		return nil, err
	}
	if rc.tracing != nil {
		return rc.tracing.read(v, true)
	}
	return rc.join("ReadAcross "+v.path, nil, func([]any) ([]any, error) {
		x, err := asValue(v.Read(rc.outer()))
		if err != nil {
			return nil, err
		}
		if x, err = rc.apart(x); err != nil {
			return nil, err
		}
		return rc.strategy.split(x)
	})
}

// Assign gives the variable a new value, which it returns, by the rules of
// [ReplicaContext.Assign]: an [OnRead] variable's component is the replica's own;
// writes of an [OnWrite] variable are aggregated. A value that is the same object on
// every replica is one value: SUM of it is an error, MEAN is the value. A Go number
// takes a scalar variable's dtype; one that it does not fit is an [*Error].
func (rc *EagerContext) Assign(v *Variable, x any) (any, error) { return rc.write(opAssign, v, x) }

// AssignAdd adds to the variable, like Assign.
func (rc *EagerContext) AssignAdd(v *Variable, x any) (any, error) { return rc.write(opAdd, v, x) }

// AssignSub subtracts from the variable, like Assign.
func (rc *EagerContext) AssignSub(v *Variable, x any) (any, error) { return rc.write(opSub, v, x) }

// writes refuses to write a variable of another strategy, and part of one.
func (rc *EagerContext) writes(op string, v *Variable) error {
	if rc.some {
		return &ContextError{Op: op, Reason: "called in an update of some of the devices, while a write is of all components",
			Hint: "give the update all of NonSlotDevices, or write outside"}
	}
	return rc.strategy.ownsVariable(op, v)
}

func (rc *EagerContext) write(w writeOp, v *Variable, x any) (any, error) {
	if err := rc.writes(w.name, v); err != nil {
		return nil, err
	}
	op := fmt.Sprintf("%s %q", w.name, v.path)
	if rc.tracing != nil {
		return rc.tracing.written(v, rc.tracing.write(w, v, x))
	}
	return rc.join(w.name+" "+v.path, x, func(xs []any) ([]any, error) {
		value, whole, release, err := rc.written(op, v, xs)
		if err != nil {
			return nil, err
		}
		defer release()
		aggregate := !rc.update && !whole
		return rc.apply(builtinCall{
			name: fmt.Sprintf("replica_%s_%t", w.name, aggregate), values: []Value{value}, variables: []*Variable{v},
			step: func(c *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
				x := in[0]
				if aggregate {
					x = c.aggregate(op, held[0].variable, x)
				}
				return []*graph.Node{c.set(op, held[0], x, w.apply)}
			},
		}, v)
	})
}

// apply runs a write and gives each replica the variable's new value.
func (rc *EagerContext) apply(c builtinCall, v *Variable) ([]any, error) {
	c.mirrored, c.results = rc.update && !v.perReplica(), one(v.annotation)
	results, err := rc.strategy.call(rc.outer(), c)
	if err != nil {
		return nil, err
	}
	results[0].base().equal = !v.perReplica()
	return rc.strategy.split(results[0])
}

// apart makes a per-replica value of a mirrored one, in a replica's code: what a
// replica reads is its own.
func (rc *EagerContext) apart(x Value) (Value, error) {
	m, ok := x.(*Mirrored)
	if !ok || rc.update {
		return x, nil
	}
	defer m.Close()
	return rc.copyApart(m)
}

// copyApart is a mirrored value's copy with a component for each replica.
//
// It counts as mirrored still.
func (rc *EagerContext) copyApart(m *Mirrored) (Value, error) {
	results, err := rc.strategy.call(rc.outer(), builtinCall{
		name: "apart", values: []Value{m}, results: one(m.annotation),
		step: func(_ *ReplicaContext, _ []*captured, in []*graph.Node) []*graph.Node { return in },
	})
	if err != nil {
		return nil, err
	}
	return asEqual(results[0]), nil
}

// written makes one value of what the replicas write. whole is set for a value
// that is one for all and that an aggregation would leave as it is.
func (rc *EagerContext) written(op string, v *Variable, xs []any) (value Value, whole bool, release func(), err error) {
	s := rc.strategy
	converted := make([]any, len(xs))
	_, all := asOne(xs)
	for r, x := range xs {
		if err = s.ownsLeaf(op, x); err != nil && !(all && s.lifts(x)) {
			return nil, false, nil, err
		}
		if number.Is(x) && len(v.shape) == 0 {
			if x, err = number.As(op, x, v.dtype); err != nil {
				return nil, false, nil, err
			}
		}
		converted[r] = x
	}
	object, one := asOne(converted)
	_, host := hostObject(object)
	whole = one && host && v.synchronization == OnWrite
	if !rc.update && v.synchronization == OnWrite && s.replicas > 1 {
		switch {
		case v.aggregation == AggregateNone && !v.localWrites:
			return nil, false, nil, (&ReplicaContext{}).noAggregation(op)
		case v.aggregation == AggregateSum && whole:
			return nil, false, nil, notDistributed(op)
		}
	}
	if rc.update && !v.perReplica() && (!one || !host) {
		if converted, err = rc.mirrorEqual(op, v, converted); err != nil {
			return nil, false, nil, err
		}
	}
	value, release, err = s.merge(rc.outer(), op, converted)
	if err != nil {
		return nil, false, nil, err
	}
	base := value.base()
	if base.ragged != nil || !base.Shape().Equal(v.Shape()) {
		release()
		shape := base.Shape().String()
		if base.ragged != nil {
			shape = fmt.Sprint(base.ragged)
		}
		return nil, false, nil, fault.New(ValueError, op, "give a value of its shape and dtype", "a value of shape %s for a variable of shape %s", shape, v.Shape())
	}
	return value, whole, release, nil
}

// hostObject reports whether a leaf is a host value.
func hostObject(x any) (any, bool) {
	switch x.(type) {
	case nil, Value, *Variable, *Component, *Objects:
		return nil, false
	}
	return x, true
}

// mirrorEqual checks that what an update writes to the components of a mirrored
// variable is the same for all, as they have to stay.
func (rc *EagerContext) mirrorEqual(op string, v *Variable, xs []any) ([]any, error) {
	differ := fault.New(ValueError, op, "write one value, or create the variable with LocalWrites",
		"different values for the components of a mirrored variable")
	if object, ok := asOne(xs); ok {
		of, ok := object.(*Variable)
		if value, ok := object.(Value); ok && value.base().differs() {
			return nil, differ
		}
		if !ok || !of.perReplica() {
			return xs, nil
		}
		xs = of.each() // its components may be equal
	}
	all, err := rc.hostValues(op, xs)
	if err != nil {
		return nil, differ
	}
	for _, t := range all {
		if !equalTensors(all[0], t) {
			return nil, differ
		}
	}
	for r := range xs {
		xs[r] = all[0]
	}
	return xs, nil
}

func equalTensors(a, b *tensors.Tensor) bool {
	if a == b || !a.Shape().Equal(b.Shape()) {
		return a == b // a tensor's bytes are locked while they are read
	}
	equal := false
	_ = a.ConstBytes(func(x []byte) {
		_ = b.ConstBytes(func(y []byte) { equal = slices.Equal(x, y) })
	})
	return equal
}

// Update joins the replicas and updates the variable once: [Extended.Update] of the
// merged arguments.
func (rc *EagerContext) Update(v *Variable, fn UpdateFunc, args ...any) (any, error) {
	s := rc.strategy
	if err := s.ownsVariable("Update", v); err != nil {
		return nil, err
	}
	if rc.tracing != nil {
		return s.Extended().Update(rc.ctx, v, fn, args...)
	}
	return rc.join("Update "+v.path, args, func(all []any) ([]any, error) {
		merged, err := s.regroup(rc.outer(), "update", all, false)
		if err != nil {
			return nil, err
		}
		result, err := s.Extended().Update(rc.outer(), v, fn, merged.([]any)...)
		if err != nil {
			return nil, err
		}
		return s.split(result)
	})
}

// NewVariable makes one variable for all replicas, with replica 0's first value:
// what creating a variable in TensorFlow's run does. All give the same options.
func (rc *EagerContext) NewVariable(initial any, opts VariableOptions) (*Variable, error) {
	v, err := rc.join("NewVariable "+opts.Name, initial, func(all []any) ([]any, error) {
		v, err := rc.strategy.NewVariable(rc.outer(), all[0], opts)
		if err != nil {
			return nil, err
		}
		same := make([]any, len(all))
		for r := range same {
			same[r] = v
		}
		return same, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*Variable), nil
}
