package eager

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// UpdateContext gives an update's function one component of the variable, on the component's
// device. Use it inside the function only.
type UpdateContext struct {
	rc       *ReplicaContext
	variable *strategy.Variable
	device   string
}

// UpdateFunc updates one component of a variable. args are the component's parts of the arguments
// of the update.
type UpdateFunc func(u *UpdateContext, args ...any) (any, error)

// Context returns the context of the update, which is cross-replica and carries the component's
// number. With it the variables' own methods act on the component: Assign, AssignAdd, AssignSub and
// Scatter write the component alone and join the components' functions, as the methods of the
// UpdateContext do; Read and Value return the component, not the components combined.
func (u *UpdateContext) Context() context.Context { return u.rc.ctx }

// Variable returns the variable that is updated, or nil for a non-slot update.
func (u *UpdateContext) Variable() *strategy.Variable { return u.variable }

// ReplicaID returns the component's number.
func (u *UpdateContext) ReplicaID() int { return u.rc.ReplicaIDInSyncGroup() }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string {
	u.rc.one("Device")
	return u.device
}

// Ops returns the arithmetic of the component's device: Add, Sub, Mul, Div and compiled functions,
// on all components at once.
func (u *UpdateContext) Ops() *ReplicaContext { return u.rc }

// Read returns the component as it is now.
func (u *UpdateContext) Read() (any, error) { return u.rc.Read(u.variable) }

// Assign writes the component and returns its new value; nothing is aggregated. The components of a
// mirrored variable take equal values, unless they may differ (see
// [strategy.VariableOptions.LocalWrites]).
func (u *UpdateContext) Assign(x any) (any, error) {
	return u.rc.write(assign.Set, u.variable, u.rc.part(x))
}

// AssignAdd adds to the component and returns its new value.
func (u *UpdateContext) AssignAdd(x any) (any, error) {
	return u.rc.write(assign.Add, u.variable, u.rc.part(x))
}

// AssignSub subtracts from the component and returns its new value.
func (u *UpdateContext) AssignSub(x any) (any, error) {
	return u.rc.write(assign.Sub, u.variable, u.rc.part(x))
}

// Scatter combines rows of the component with updates and returns the component's new value, as
// [strategy.ReplicaContext.Scatter] does, but without aggregation, whatever the variable's
// aggregation is. The components of a mirrored variable take equal rows, unless they may differ.
func (u *UpdateContext) Scatter(op strategy.ScatterOp, indices, updates any) (any, error) {
	return u.rc.Scatter(op, u.variable, u.rc.part(indices), u.rc.part(updates))
}

// part is the component's part of a value: the functions may have made one each.
func (rc *ReplicaContext) part(x any) any {
	v, ok := x.(strategy.Value)
	_, updating := UpdateReplicaID(rc.ctx) // false in a non-slot update that is one for all
	if !ok || !updating || inner(rc.strategy).Owns("value", v) != nil {
		return x
	}
	return Component{value: v, replica: rc.replica}
}

// Update runs fn on each component of the variable: TensorFlow's update with group=True. The
// function of a component receives its parts of the distributed values among args. The functions'
// results are regrouped; components of one value become that value.
//
// A *[strategy.PerReplica] argument for a variable that aggregates is an [*strategy.Error] of kind
// TypeError, unless [strategy.Options.Semantics] is [strategy.TensorFlowMirrored]: reduce it first.
func (e *Extended) Update(ctx context.Context, v *strategy.Variable, fn UpdateFunc, args ...any) (any, error) {
	if t, err := merging(ctx, e.strategy, "update"); err != nil {
		return nil, err
	} else if t != nil {
		return e.tracedUpdate(ctx, t, v, fn, args)
	}
	results, err := e.UpdateEach(ctx, v, fn, args...)
	if err != nil {
		return nil, err
	}
	return e.group(ctx, "update", results)
}

// UpdateEach does what [Extended.Update] does, TensorFlow's update with group=False: it returns the
// components' results in replica order, not regrouped.
func (e *Extended) UpdateEach(ctx context.Context, v *strategy.Variable, fn UpdateFunc, args ...any) ([]any, error) {
	s := e.strategy
	if v == nil {
		return nil, fault.New(errkind.AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.Path())
	if err := inner(s).RequireCross(ctx, op); err != nil {
		return nil, err
	}
	if err := inner(s).Owns(op, v); err != nil {
		return nil, err
	}
	if t, err := merging(ctx, s, op); err != nil {
		return nil, err
	} else if t != nil {
		result, err := e.tracedUpdate(ctx, t, v, fn, args)
		if err != nil {
			return nil, err
		}
		return e.eachOf(t, op, result)
	}
	if needsMirrored(v) {
		for i, arg := range args {
			if _, err := nesting.Map(op, arg, func(path string, x any) (any, error) {
				if p, ok := x.(*strategy.PerReplica); ok && p != nil && varying(p) {
					return nil, fault.New(errkind.TypeError, op, "reduce it first", "argument %d%s, %s, is not mirrored", i, path, p)
				}
				if w, ok := x.(*strategy.Variable); ok && w != nil && w.Synchronization() == strategy.OnRead {
					return nil, fault.New(errkind.TypeError, op, "read it first", "argument %d%s, the sync-on-read variable %q, is not mirrored", i, path, w.Path())
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
func (e *Extended) tracedUpdate(ctx context.Context, t *trace, v *strategy.Variable, fn UpdateFunc, args []any) (any, error) {
	if v == nil {
		return nil, fault.New(errkind.AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.Path())
	if err := inner(e.strategy).Owns(op, v); err != nil {
		return nil, err
	}
	return e.updateIn(ctx, t, op, v, fn, args)
}

// update runs fn once for each device, with the arguments' components in that order.
func (e *Extended) update(ctx context.Context, v *strategy.Variable, devices []string, fn UpdateFunc, args []any) ([]any, error) {
	s := e.strategy
	nests, err := e.splitArguments(ctx, args)
	if err != nil {
		return nil, err
	}
	return e.runSome(ctx, len(devices), s.NumReplicasInSync(), func(c *coroutine, r int) (any, error) {
		u := &UpdateContext{rc: e.eager(ctx, c, r, true), variable: v, device: devices[r]}
		u.rc.some = len(devices) < s.NumReplicasInSync()
		u.rc.ctx = mode.With(ctx, mode.Mode{Strategy: s, Update: r, Code: &componentCode{u.rc}})
		return fn(u, nests[r]...)
	})
}

// componentsOf lists the variable's components.
func componentsOf(v *strategy.Variable) []any {
	all := make([]any, v.Strategy().NumReplicasInSync())
	for r := range all {
		all[r] = Component{variable: v, replica: r}
	}
	return all
}

// hostValues are host copies of what the functions give, components among them.
func (rc *ReplicaContext) hostValues(xs []any) ([]*tensors.Tensor, error) {
	all := make([]*tensors.Tensor, len(xs))
	for i, x := range xs {
		var err error
		if c, ok := x.(Component); ok {
			all[i], err = c.Local(rc.ctx)
		} else {
			all[i], err = hostdata.Tensor(x)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
