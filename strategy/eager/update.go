package eager

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// UpdateContext is the context in which an update function updates one component of the variable.
// It is valid only inside the function.
type UpdateContext struct {
	rc       *ReplicaContext
	variable *strategy.Variable
	device   string
}

// UpdateFunc updates one component of a variable. For each distributed value in the arguments of
// the update, args has the component of the same replica.
type UpdateFunc func(u *UpdateContext, args ...any) (any, error)

// Context returns the cross-replica context of the update. With this context the variables' methods
// affect only the component. Assign, AssignAdd, AssignSub and Scatter are collective calls: the
// update functions of all components must make them. Read and Value return the component instead of
// the combined components.
func (u *UpdateContext) Context() context.Context { return u.rc.ctx }

// Variable returns the variable that is updated, or nil in [Extended.UpdateNonSlot].
func (u *UpdateContext) Variable() *strategy.Variable { return u.variable }

// ReplicaID returns the index of the replica whose component is updated.
func (u *UpdateContext) ReplicaID() int { return u.rc.ReplicaIDInSyncGroup() }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string {
	u.rc.requireOne("Device")
	return u.device
}

// Ops returns a replica context with which the update function computes on the component's device.
// Use its methods Add, Sub, Mul, Div and Call. Each call runs for all components at once.
func (u *UpdateContext) Ops() *ReplicaContext { return u.rc }

// Read returns the current value of the component.
func (u *UpdateContext) Read() (any, error) { return u.rc.Read(u.variable) }

// Assign writes the component without aggregation and returns its new value. All components of a
// mirrored variable must be assigned equal values, unless [strategy.VariableOptions.LocalWrites] is
// set.
func (u *UpdateContext) Assign(x any) (any, error) {
	return u.rc.Assign(u.variable, x)
}

// AssignAdd adds x to the component and returns the component's new value.
func (u *UpdateContext) AssignAdd(x any) (any, error) {
	return u.rc.AssignAdd(u.variable, x)
}

// AssignSub subtracts x from the component and returns the component's new value.
func (u *UpdateContext) AssignSub(x any) (any, error) {
	return u.rc.AssignSub(u.variable, x)
}

// Scatter combines rows of the component with updates and returns the component's new value, like
// [strategy.ReplicaContext.Scatter] without aggregation. All components of a mirrored variable must
// receive equal rows, unless LocalWrites is set.
func (u *UpdateContext) Scatter(op strategy.ScatterOp, indices, updates any) (any, error) {
	return u.rc.Scatter(op, u.variable, indices, updates)
}

// component returns this replica's component of x if x is a distributed value, and otherwise x.
func (rc *ReplicaContext) component(x any) any {
	v, ok := x.(strategy.Value)
	_, updating := UpdateReplicaID(rc.ctx) // false in a non-slot update that runs once
	if !ok || !updating || engine.Internal(rc.strategy).CheckOwned("value", v) != nil {
		return x
	}
	return Component{value: v, replica: rc.replica}
}

// Update runs fn on each component of the variable, like TensorFlow's update with group=True. Each
// function receives its component of each distributed value in args. The results are combined as in
// [Extended.Regroup].
//
// In a job with several processes, each process runs fn for the components of its own replicas, and
// all processes must make the call together. Calls of the strategy that launch programs, such as
// Reduce, then return [strategy.ErrContext] in fn: use the methods of the [UpdateContext].
//
// A *[strategy.PerReplica] argument for a variable that aggregates is an [*strategy.Error] of kind
// TypeError, unless [strategy.Options.Semantics] is [strategy.TensorFlowMirrored]: reduce it first.
func (e *Extended) Update(ctx context.Context, v *strategy.Variable, fn UpdateFunc, args ...any) (any, error) {
	results, in, err := e.updateAll(ctx, v, fn, args)
	switch {
	case err != nil:
		return nil, err
	case in != nil:
		return results[0], nil
	}
	return e.regroup(ctx, "update", results, true)
}

// UpdateEach is like [Extended.Update], but returns the results of this process's replicas in
// replica order, without combining them. It corresponds to TensorFlow's update with group=False.
func (e *Extended) UpdateEach(ctx context.Context, v *strategy.Variable, fn UpdateFunc, args ...any) ([]any, error) {
	results, in, err := e.updateAll(ctx, v, fn, args)
	if err != nil || in == nil {
		return e.localResults(results), err
	}
	return in.splitNest("update", results[0])
}

// updateAll runs the update function for each component and returns the results. In a merge call of
// a compiled step it returns one result, because the function is traced once for all components.
func (e *Extended) updateAll(ctx context.Context, v *strategy.Variable, fn UpdateFunc, args []any) (results []any,
	in *MergeContext, err error) {
	if v == nil {
		return nil, nil, fault.New(errkind.AssertionError, "update", "give a variable of the strategy", "no variable")
	}
	op := fmt.Sprintf("update %q", v.Path())
	if in, err = e.mergeContext(ctx, op); err != nil {
		return nil, nil, err
	}
	if err := engine.Internal(e.strategy).CheckOwned(op, v); err != nil {
		return nil, nil, err
	}
	if in != nil {
		result, err := e.traceUpdate(ctx, in, op, v, fn, args)
		return []any{result}, in, err
	}
	for i, arg := range args {
		if _, err := nesting.Map(op, arg, func(path string, x any) (any, error) {
			return x, checkMirrored(op, fmt.Sprintf("%d%s", i, path), v, x)
		}); err != nil {
			return nil, nil, err
		}
	}
	results, err = e.updateComponents(ctx, v, v.Devices(), fn, args)
	return results, nil, err
}

// checkMirrored returns an error if the components of v must remain equal and an argument of the
// update differs between replicas.
func checkMirrored(op, where string, v *strategy.Variable, x any) error {
	if v == nil || v.Aggregation() == strategy.AggregateNone || v.Synchronization() != strategy.OnWrite ||
		v.Strategy().Semantics() == strategy.TensorFlowMirrored {
		return nil
	}
	varies := false
	switch x := x.(type) {
	case *strategy.Variable:
		if x != nil && x.Synchronization() == strategy.OnRead {
			return fault.New(errkind.TypeError, op, "read it first",
				"argument %s, the sync-on-read variable %q, is not mirrored", where, x.Path())
		}
	case *strategy.PerReplica:
		varies = x != nil && isVarying(x)
	case *MergeValue:
		varies = x != nil && !x.mirrored
	}
	if varies {
		return fault.New(errkind.TypeError, op, "reduce it first", "argument %s, %s, is not mirrored", where, x)
	}
	return nil
}

// updateComponents runs fn once for each of the devices. The function for devices[i] receives
// component i of each argument.
func (e *Extended) updateComponents(ctx context.Context, v *strategy.Variable, devices []string, fn UpdateFunc,
	args []any) ([]any, error) {
	s := e.strategy
	nests, err := e.splitArguments(ctx, args)
	if err != nil {
		return nil, err
	}
	return e.runReplicas(ctx, len(devices), s.NumReplicasInSync(), func(c *coroutine, r int) (any, error) {
		rc := &ReplicaContext{strategy: s, coroutine: c, replica: r, inUpdate: true,
			onSomeDevices: len(devices) < s.NumReplicasInSync()}
		rc.ctx = mode.With(ctx, mode.Mode{Strategy: s, Update: r, Code: &componentCode{rc}})
		return fn(&UpdateContext{rc: rc, variable: v, device: devices[r]}, nests[r]...)
	})
}
