package strategy

import (
	"context"
	"fmt"
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
// number.
func (u *UpdateContext) Context() context.Context { return u.rc.ctx }

// Variable returns the variable that is updated, nil for a non-slot update.
func (u *UpdateContext) Variable() *Variable { return u.variable }

// ReplicaID returns the component's number.
func (u *UpdateContext) ReplicaID() int { return u.rc.replica }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string { return u.device }

// Ops returns the arithmetic of the component's device: Add, Sub, Mul, Div and
// compiled functions, on all components at once.
func (u *UpdateContext) Ops() *EagerContext { return u.rc }

// Read returns the component as it is now.
func (u *UpdateContext) Read() (any, error) { return u.rc.Read(u.variable) }

// Assign writes the component and returns its new value; nothing is aggregated. A
// mirrored variable's components take equal values, unless they may differ (see
// [VariableOptions.LocalWrites]).
func (u *UpdateContext) Assign(x any) (any, error) { return u.rc.write(opAssign, u.variable, x) }

// AssignAdd adds to the component.
func (u *UpdateContext) AssignAdd(x any) (any, error) { return u.rc.write(opAdd, u.variable, x) }

// AssignSub subtracts from the component.
func (u *UpdateContext) AssignSub(x any) (any, error) { return u.rc.write(opSub, u.variable, x) }

// Update runs fn on each component of the variable: TensorFlow's update with
// group=True. Distributed values among args are split to the components. What the
// functions return is regrouped; components of one value are that value.
//
// A *[PerReplica] argument of a variable that aggregates is an [*Error] of kind
// TypeError, unless [Options.Semantics] is [TensorFlowMirrored]: reduce it first.
func (e *Extended) Update(ctx context.Context, v *Variable, fn UpdateFunc, args ...any) (any, error) {
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
		return nil, fault(AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.path)
	if err := s.requireCross(ctx, op); err != nil {
		return nil, err
	}
	if v.strategy != s {
		return nil, &StrategyError{Op: op, Subject: fmt.Sprintf("variable %q", v.path)}
	}
	if v.aggregation != AggregateNone && v.synchronization == OnWrite && s.opts.Semantics != TensorFlowMirrored {
		for i, arg := range args {
			if _, err := mapNest(op, arg, func(path string, x any) (any, error) {
				if p, ok := x.(*PerReplica); ok {
					return nil, fault(TypeError, op, "reduce it first", "argument %d%s, %s, is not mirrored", i, path, &p.distributed)
				}
				return x, nil
			}); err != nil {
				return nil, err
			}
		}
	}
	return e.update(ctx, v, s.replicas, fn, args)
}

func (e *Extended) update(ctx context.Context, v *Variable, n int, fn UpdateFunc, args []any) ([]any, error) {
	s := e.strategy
	nests, err := s.splitArguments(args)
	if err != nil {
		return nil, err
	}
	return runReplicas(ctx, n, func(c *coroutine, r int) (any, error) {
		u := &UpdateContext{rc: s.eager(ctx, c, r, true), variable: v}
		column := columnOf(ctx)
		if v != nil {
			column = v.column
		}
		u.device = s.deviceName(r, column)
		return fn(u, nests[r]...)
	})
}

// NonSlotDevices returns where state that belongs to no variable lives: the first
// host for TPUStrategy, all worker devices for MirroredStrategy.
func (e *Extended) NonSlotDevices() []string {
	s := e.strategy
	if s.opts.Semantics == TensorFlowMirrored {
		return e.WorkerDevices(context.Background())
	}
	return []string{s.hostName(0)}
}

// UpdateNonSlot runs fn on the non-slot devices: TensorFlow's update_non_slot. As
// in TPUStrategy it runs once, on the first host, with args as they are, and its
// result is returned as it is; as in MirroredStrategy, if [Options.Semantics] says
// so, it runs once for each device with its part of the arguments.
func (e *Extended) UpdateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args ...any) (any, error) {
	results, err := e.UpdateNonSlotEach(ctx, devices, fn, args...)
	if err != nil {
		return nil, err
	}
	if e.strategy.opts.Semantics != TensorFlowMirrored {
		return results[0], nil
	}
	return e.strategy.group(ctx, "update non-slot", results)
}

// UpdateNonSlotEach is [Extended.UpdateNonSlot] with group=False: the results, one
// a run of fn.
func (e *Extended) UpdateNonSlotEach(ctx context.Context, devices []string, fn UpdateFunc, args ...any) ([]any, error) {
	s := e.strategy
	if err := s.requireCross(ctx, "update non-slot"); err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, fault(AssertionError, "update non-slot", "use NonSlotDevices", "no devices")
	}
	if s.opts.Semantics == TensorFlowMirrored {
		return e.update(ctx, nil, s.replicas, fn, args)
	}
	return runReplicas(ctx, 1, func(c *coroutine, r int) (any, error) {
		rc := s.eager(ctx, c, r, true)
		rc.ctx = withMode(ctx, mode{strategy: s, update: -1})
		return fn(&UpdateContext{rc: rc, device: s.hostName(0)}, args...)
	})
}
