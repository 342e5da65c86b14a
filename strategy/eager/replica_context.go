package eager

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// ReplicaContext is the context of eager replica code, a Go function that
// [Extended.CallForEachReplica] runs once for each replica. It corresponds to TensorFlow's
// tf.distribute.ReplicaContext outside a tf.function. Its collectives, variable writes and
// MergeCall are collective calls: all replicas must make the same calls in the same order, and each
// call runs one small program on all devices. A ReplicaContext is valid only inside the function.
//
// Tensor arguments and results of its methods are [Component]s, the replica's tensors of values on
// the devices. The methods also accept host values, such as a number or a *tensors.Tensor.
type ReplicaContext struct {
	strategy      *strategy.TPUStrategy
	ctx           context.Context
	coroutine     *coroutine
	replica       int
	inUpdate      bool // in an update's function: writes affect only the component
	onSomeDevices bool // in an update with fewer functions than components: no writes
	onHost        bool // in the only function of a non-slot update on the host: see host.go
	// tracing is set in an update of a compiled step.
	tracing *MergeContext
}

type ReplicaFunc func(rc *ReplicaContext, args ...any) (any, error)

// CallForEachReplica runs fn once for each replica, like TensorFlow's call_for_each_replica and
// eager Strategy.run. The arguments args are nests. A replica receives its component of each
// distributed value in the nests; variables and host values are passed unchanged.
// [Extended.Regroup] defines how the results are combined. The replicas run one at a time, in
// order, each until its next collective call, so fn needs no locks.
//
// In a job with several processes, each process runs fn for its own replicas
// ([strategy.TPUStrategy.LocalReplicas]), and all processes must make the call together. The result
// is the same distributed value as with one process; [Extended.LocalResultsOf] returns the
// components of this process. If fn returns an error in one process, the call returns in all
// processes.
//
// CallForEachReplica returns an error of fn, an [*errkind.PanicError] if fn panics, [ErrJoin] if
// the replicas do not make the same collective calls, an [*strategy.Error] for results with
// different structures, and [strategy.ErrContext] in replica code. The strategy remains usable
// after an error.
func (e *Extended) CallForEachReplica(ctx context.Context, fn ReplicaFunc, args ...any) (any, error) {
	s := e.strategy
	if err := engine.Internal(s).CheckEager(ctx, "call for each replica", fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if err := engine.Internal(s).CheckOpen(); err != nil {
		return nil, err
	}
	nests, err := e.splitArguments(ctx, args)
	if err != nil {
		return nil, err
	}
	n := s.NumReplicasInSync()
	results, err := e.runReplicas(ctx, n, n, func(c *coroutine, r int) (any, error) {
		rc := &ReplicaContext{strategy: s, coroutine: c, replica: r}
		rc.ctx = mode.With(ctx, mode.Mode{Strategy: s, Replica: true, Update: -1, Code: rc})
		return fn(rc, nests[r]...)
	})
	if err != nil {
		return nil, err
	}
	return e.regroup(ctx, "call for each replica", results, false)
}

// splitArguments returns the arguments of each replica: the replica's components of the distributed
// values in args. Values of other strategies are copied.
func (e *Extended) splitArguments(ctx context.Context, args []any) ([][]any, error) {
	s := engine.Internal(e.strategy)
	nests := make([][]any, e.strategy.NumReplicasInSync())
	for i, arg := range args {
		arg, err := nesting.Map("split", arg, func(_ string, x any) (any, error) {
			if v, ok := x.(strategy.Value); ok && s.NeedsResolve(v) {
				_, value, _, err := s.Resolve(ctx, "split", v)
				return value, err
			}
			return x, nil
		})
		var parts []any
		if err == nil {
			parts, err = e.splitByReplica(arg)
		}
		if err == nil && e.strategy.NumProcesses() > 1 {
			setOrigin(fmt.Sprintf("argument %d of call %d", i, s.NextCallNumber()), arg)
		}
		if err != nil {
			return nil, fault.Wrap(fmt.Sprintf("argument %d", i), err, "")
		}
		for r, part := range parts {
			nests[r] = append(nests[r], part)
		}
	}
	return nests, nil
}

func (rc *ReplicaContext) Strategy() *strategy.TPUStrategy { return rc.strategy }

// Context returns the context of the replica's code. Calls that require cross-replica context
// return an error for this context.
func (rc *ReplicaContext) Context() context.Context { return rc.ctx }

// ReplicaIDInSyncGroup returns the index of the replica, from 0, like TensorFlow's
// replica_id_in_sync_group.
func (rc *ReplicaContext) ReplicaIDInSyncGroup() int {
	rc.requireOne("ReplicaIDInSyncGroup")
	return rc.replica
}

// NumReplicasInSync returns the number of replicas.
func (rc *ReplicaContext) NumReplicasInSync() int { return rc.strategy.NumReplicasInSync() }

// Device returns the name of the replica's device.
func (rc *ReplicaContext) Device() string {
	rc.requireOne("Device")
	return Of(rc.strategy).WorkerDevices(rc.ctx)[rc.replica]
}

// callCollective makes a collective call. run receives the arguments of all replicas and returns a
// result for each replica; both may be nests. The subject of the call must be equal on all
// replicas; see collectiveCall.
func (rc *ReplicaContext) callCollective(call string, subject, arg any, run func(args []any) ([]any, error)) (any,
	error) {
	if rc.tracing != nil {
		return nil, &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + call,
			Reason: "called in an update of a compiled step, where it would run once and not in each run",
			Hint:   fault.InsteadOfRunning}
	}
	return rc.coroutine.call(&collectiveCall{call: call, subject: subject, arg: arg, run: run})
}

// callerContext returns the cross-replica context in which a collective call is executed.
func (rc *ReplicaContext) callerContext() context.Context {
	update := -1
	if rc.inUpdate && !rc.onHost {
		update = rc.replica
	}
	return mode.With(rc.ctx, mode.Mode{Strategy: rc.strategy, Update: update})
}

// MergeCall runs fn once for all replicas, in cross-replica context, like TensorFlow's merge_call.
// It is a collective call. fn receives the combined arguments of all replicas, in which tensors are
// *[strategy.PerReplica] values. Each replica receives its components of the result. Inside fn, use
// the ctx that fn receives, for example with [strategy.TPUStrategy.Reduce] and [Extended.Update];
// the replica context is not usable. If fn returns an error or panics, MergeCall returns an error
// on every replica.
func (rc *ReplicaContext) MergeCall(fn func(ctx context.Context, args ...any) (any, error), args ...any) (any, error) {
	s := rc.strategy
	if err := rc.checkReplicaCode("MergeCall"); err != nil {
		return nil, err
	}
	return rc.callCollective("MergeCall", nil, args, func(all []any) ([]any, error) {
		columns, err := columnsOf("MergeCall", all)
		if err != nil {
			return nil, err
		}
		merged := make([]any, len(columns))
		for i, column := range columns {
			if merged[i], err = Of(s).regroup(rc.callerContext(), "MergeCall", column, false); err != nil {
				return nil, err
			}
			if s.NumReplicasInSync() == 1 {
				continue
			}
			// A replica's component counts as its own tensor even if the value was mirrored.
			if merged[i], err = nesting.Map("MergeCall", merged[i], func(_ string, x any) (any, error) {
				if m, ok := x.(*strategy.Mirrored); ok && m != nil {
					return rc.copyPerReplica(m)
				}
				return x, nil
			}); err != nil {
				return nil, err
			}
		}
		result, err := fn(rc.callerContext(), merged...)
		if err != nil {
			return nil, err
		}
		if s.NumReplicasInSync() == 1 {
			return Of(s).splitResult(args, result)
		}
		return Of(s).splitByReplica(result)
	})
}

// splitResult returns the result of a merge call to the only replica of the strategy. If the result
// is an object that the replica passed to the merge call, splitResult returns the same object.
func (e *Extended) splitResult(args []any, result any) ([]any, error) {
	var given []any
	if _, err := nesting.Map("MergeCall", args, func(_ string, x any) (any, error) {
		given = append(given, x)
		return nil, nil
	}); err != nil {
		return nil, err
	}
	part, err := nesting.Map("MergeCall", result, func(_ string, x any) (any, error) {
		for _, g := range given {
			if nesting.IsSameLeaf(g, x) {
				return x, nil
			}
		}
		return e.SelectReplica(0, x)
	})
	return []any{part}, err
}

// checkReplicaCode returns an error if it is called in an update function, which is not replica
// code.
func (rc *ReplicaContext) checkReplicaCode(op string) error {
	if !rc.inUpdate {
		return nil
	}
	return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
		Reason: "called in an update, which has no replica context", Hint: "call it in the replicas' code, before the update"}
}

// columnsOf transposes the replicas' lists of arguments: result i has argument i of each replica.
func columnsOf(call string, all []any) ([][]any, error) {
	first, _ := all[0].([]any)
	columns := make([][]any, len(first))
	for r := range all {
		mine, _ := all[r].([]any)
		if len(mine) != len(first) {
			return nil, fault.New(errkind.AssertionError, call, "give the same arguments on every replica",
				"replica %d has %d arguments, replica 0 %d", r, len(mine), len(first))
		}
		for i, x := range mine {
			columns[i] = append(columns[i], x)
		}
	}
	return columns, nil
}

// splitByReplica splits a nest of distributed values into one nest for each replica. The nest of a
// replica is nil if it has objects that only another process has.
func (e *Extended) splitByReplica(nest any) ([]any, error) {
	s := e.strategy
	parts := make([]any, s.NumReplicasInSync())
	for r := range parts {
		var err error
		if parts[r], err = e.SelectReplica(r, nest); err != nil &&
			(e.isLocal(r) || !errors.Is(err, strategy.ErrRemote)) {
			return nil, err
		}
	}
	return parts, nil
}

// Call runs a compiled function on all replicas. Each replica passes its own arguments and receives
// its own results. Call is a collective call.
func (rc *ReplicaContext) Call(f *strategy.Function, args ...any) ([]any, error) {
	s := rc.strategy
	if f == nil || f.Strategy() != s {
		return nil, fault.OtherStrategy("Call", "the function")
	}
	out, err := rc.callCollective("Call of "+f.Name(), f, args, func(all []any) ([]any, error) {
		columns, err := columnsOf("Call", all)
		if err != nil {
			return nil, err
		}
		values := make([]any, len(columns))
		for i, column := range columns {
			v, release, err := rc.operand("Call", i, column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = v
		}
		results, err := f.Run(rc.callerContext(), values...)
		if err != nil {
			return nil, err
		}
		nest := make([]any, len(results))
		for i, x := range results {
			nest[i] = x
		}
		if rc.onHost {
			return []any{rc.mirroredComponents(nest)}, nil
		}
		return Of(s).splitByReplica(nest)
	})
	if err != nil {
		return nil, err
	}
	return out.([]any), nil
}
