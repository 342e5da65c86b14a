package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// UpdateContext is what an update's function sees: one component of the variable,
// on its device. It is of use inside the function only.
type UpdateContext struct {
	rc       *EagerContext
	variable *Variable
	device   string
}

// UpdateFunc updates one component of a variable. args are the component's part of
// the update's arguments.
type UpdateFunc func(u *UpdateContext, args ...any) (any, error)

// Context returns the context of the update: cross-replica, with the component's
// number. The variables' own methods that are given it act on the component: Assign,
// AssignAdd, AssignSub and Scatter write it alone and join the components' functions
// as those of the UpdateContext do; Read and Value give it, not what the components
// combine to.
func (u *UpdateContext) Context() context.Context { return u.rc.ctx }

// Variable returns the variable that is updated, nil for a non-slot update.
func (u *UpdateContext) Variable() *Variable { return u.variable }

// ReplicaID returns the component's number.
func (u *UpdateContext) ReplicaID() int { return u.rc.ReplicaIDInSyncGroup() }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string {
	u.rc.one("Device")
	return u.device
}

// Ops returns the arithmetic of the component's device: Add, Sub, Mul, Div and
// compiled functions, on all components at once.
func (u *UpdateContext) Ops() *EagerContext { return u.rc }

// Read returns the component as it is now.
func (u *UpdateContext) Read() (any, error) { return u.rc.Read(u.variable) }

// Assign writes the component and returns its new value; nothing is aggregated. A
// mirrored variable's components take equal values, unless they may differ (see
// [VariableOptions.LocalWrites]).
func (u *UpdateContext) Assign(x any) (any, error) {
	return u.rc.write(opAssign, u.variable, u.rc.part(x))
}

// AssignAdd adds to the component.
func (u *UpdateContext) AssignAdd(x any) (any, error) {
	return u.rc.write(opAdd, u.variable, u.rc.part(x))
}

// AssignSub subtracts from the component.
func (u *UpdateContext) AssignSub(x any) (any, error) {
	return u.rc.write(opSub, u.variable, u.rc.part(x))
}

// Scatter combines rows of the component with updates and returns its new value: as
// [ReplicaContext.Scatter] does, but of whatever aggregation the variable is nothing
// is aggregated. A mirrored variable's components take equal rows, unless they may
// differ.
func (u *UpdateContext) Scatter(op ScatterOp, indices, updates any) (any, error) {
	return u.rc.Scatter(op, u.variable, u.rc.part(indices), u.rc.part(updates))
}

// updater returns the update of the variable's strategy that ctx belongs to, or nil.
func (v *Variable) updater(ctx context.Context) *EagerContext {
	m, _ := modeOf(ctx)
	if m.updater == nil || m.strategy != v.strategy {
		return nil
	}
	return m.updater
}

// part is the component's part of a value: the functions may have made one each.
func (rc *EagerContext) part(x any) any {
	v, ok := x.(Value)
	_, updating := UpdateReplicaID(rc.ctx) // false in a non-slot update that is one for all
	if !ok || !updating || isNil(v) || rc.strategy.owns(v) != nil {
		return x
	}
	return rc.strategy.component(v, rc.replica)
}

// write writes the component of ctx's update, or all of them.
func (v *Variable) write(ctx context.Context, w writeOp, value any) error {
	op := fmt.Sprintf("%s %q", w.name, v.path)
	if t, err := v.strategy.crossTracing(ctx, op); err != nil {
		return err
	} else if t != nil {
		return t.write(w, v, value)
	}
	if rc := v.updater(ctx); rc != nil {
		_, err := rc.write(w, v, rc.part(value))
		return err
	}
	return v.crossWrite(ctx, w, value)
}

// componentAs is one component on all replicas, split over the logical devices as a
// says.
func (v *Variable) componentAs(ctx context.Context, replica int, a logical.Annotation) (*Mirrored, error) {
	of, err := v.strategy.Mirror(ctx, int32(replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer of.Close()
	results, err := v.strategy.call(ctx, builtinCall{
		name: "read_component", values: []Value{of}, variables: []*Variable{v}, mirrored: true, results: one(a),
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.of(in[0], held[0].now)}
		},
	})
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}

// Update runs fn on each component of the variable: TensorFlow's update with
// group=True. Distributed values among args are split to the components. What the
// functions return is regrouped; components of one value are that value.
//
// A *[PerReplica] argument of a variable that aggregates is an [*Error] of kind
// TypeError, unless [Options.Semantics] is [TensorFlowMirrored]: reduce it first.
func (e *Extended) Update(ctx context.Context, v *Variable, fn UpdateFunc, args ...any) (any, error) {
	if t, err := e.strategy.crossTracing(ctx, "update"); err != nil {
		return nil, err
	} else if t != nil {
		return e.tracedUpdate(ctx, t, v, fn, args)
	}
	results, err := e.UpdateEach(ctx, v, fn, args...)
	if err != nil {
		return nil, err
	}
	return e.strategy.group(ctx, "update", results)
}

// UpdateEach is [Extended.Update] with group=False: the components' results in
// replica order, not regrouped.
func (e *Extended) UpdateEach(ctx context.Context, v *Variable, fn UpdateFunc, args ...any) ([]any, error) {
	s := e.strategy
	if v == nil {
		return nil, fault.New(AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.path)
	if err := s.requireCross(ctx, op); err != nil {
		return nil, err
	}
	if err := s.ownsVariable(op, v); err != nil {
		return nil, err
	}
	if t, err := s.crossTracing(ctx, op); err != nil {
		return nil, err
	} else if t != nil {
		result, err := e.tracedUpdate(ctx, t, v, fn, args)
		if err != nil {
			return nil, err
		}
		return t.each(op, result)
	}
	if needsMirrored(v) {
		for i, arg := range args {
			if _, err := nesting.Map(op, arg, func(path string, x any) (any, error) {
				if p, ok := x.(*PerReplica); ok && p != nil && p.differs() {
					return nil, fault.New(TypeError, op, "reduce it first", "argument %d%s, %s, is not mirrored", i, path, &p.distributed)
				}
				if w, ok := x.(*Variable); ok && w != nil && w.synchronization == OnRead {
					return nil, fault.New(TypeError, op, "read it first", "argument %d%s, the sync-on-read variable %q, is not mirrored", i, path, w.path)
				}
				return x, nil
			}); err != nil {
				return nil, err
			}
		}
	}
	return e.update(ctx, v, v.Devices(), fn, args)
}

// tracedUpdate is Update in a merge call of a compiled step.
func (e *Extended) tracedUpdate(ctx context.Context, t *tracing, v *Variable, fn UpdateFunc, args []any) (any, error) {
	if v == nil {
		return nil, fault.New(AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.path)
	if err := e.strategy.ownsVariable(op, v); err != nil {
		return nil, err
	}
	return t.update(ctx, op, v, fn, args)
}

// update runs fn once for each device, with the arguments' components in that order.
func (e *Extended) update(ctx context.Context, v *Variable, devices []string, fn UpdateFunc, args []any) ([]any, error) {
	s := e.strategy
	nests, err := s.splitArguments(ctx, args)
	if err != nil {
		return nil, err
	}
	return runSome(ctx, len(devices), s.replicas, func(c *coroutine, r int) (any, error) {
		u := &UpdateContext{rc: s.eager(ctx, c, r, true), variable: v, device: devices[r]}
		u.rc.some = len(devices) < s.replicas
		u.rc.ctx = withMode(ctx, mode{strategy: s, update: r, updater: u.rc})
		return fn(u, nests[r]...)
	})
}

// componentValue copies one component to the host, of whichever process it is.
func (v *Variable) componentValue(ctx context.Context, replica int) (*tensors.Tensor, error) {
	s, a := v.strategy, v.annotation
	if s.everywhere(true, a) {
		return v.Local(ctx, replica)
	}
	if !s.everywhere(false, a) {
		a = logical.Replicated()
	}
	m, err := v.componentAs(ctx, replica, a)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Value(ctx)
}

// each lists the variable's components.
func (v *Variable) each() []any {
	all := make([]any, v.strategy.replicas)
	for r := range all {
		all[r], _ = v.Component(r) // r is one of them
	}
	return all
}

// hostValues are host copies of what the functions give, components among them.
func (rc *EagerContext) hostValues(op string, xs []any) ([]*tensors.Tensor, error) {
	given := make([]any, len(xs))
	for i, x := range xs {
		given[i] = x
		if c, ok := x.(*Component); ok {
			t, err := c.Local(rc.ctx)
			if err != nil {
				return nil, err
			}
			given[i] = t
		}
	}
	return rc.strategy.hostTensors(op, given)
}
