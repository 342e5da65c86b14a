package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// EagerContext is the replica context of eager code: a Go function that runs once
// for each replica, see [Extended.CallForEachReplica]. Its collectives, variable
// writes and MergeCall join the replicas: all must make the same calls in the same
// order, and each such call is one small program on all devices. It is of use
// inside the function only.
//
// Tensors that it takes and gives are *[Component]s, a replica's part of a value on
// the devices. Where one is expected, a host value will do: a number, a
// *tensors.Tensor.
type EagerContext struct {
	strategy  *TPUStrategy
	ctx       context.Context
	coroutine *coroutine
	replica   int
	update    bool // an update's function: writes are the component's own
	some      bool // one of fewer functions than there are components: no writes
	// tracing is set in an update of a compiled step.
	tracing *tracing
}

// ReplicaFunc is a replica's code.
type ReplicaFunc func(rc *EagerContext, args ...any) (any, error)

// CallForEachReplica runs fn once for each replica: TensorFlow's
// call_for_each_replica, and run for eager code. Distributed values among the
// nests args are split: a replica receives its component; variables and host values
// are passed whole. The results are regrouped, see [TPUStrategy.Regroup].
//
// The replicas run one at a time, in order, each until it joins the others: fn
// needs no locks.
//
// Errors: fn's own; [*PanicError]; [*JoinError] if the replicas do not make the
// same joined calls; [*Error] for results of different structure; [*ContextError]
// in replica code. The strategy stays usable.
func (e *Extended) CallForEachReplica(ctx context.Context, fn ReplicaFunc, args ...any) (any, error) {
	s := e.strategy
	if err := s.requireEager(ctx, "call for each replica", insteadOfRunning); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	nests, err := s.splitArguments(ctx, args)
	if err != nil {
		return nil, err
	}
	results, err := runReplicas(ctx, s.replicas, func(c *coroutine, r int) (any, error) {
		return fn(s.eager(ctx, c, r, false), nests[r]...)
	})
	if err != nil {
		return nil, err
	}
	return s.regroup(ctx, "call for each replica", results, false)
}

func (s *TPUStrategy) eager(ctx context.Context, c *coroutine, r int, update bool) *EagerContext {
	rc := &EagerContext{strategy: s, coroutine: c, replica: r, update: update}
	m := mode{strategy: s, update: -1}
	if update {
		m.update = r
	} else {
		m.replica, m.eager = true, rc
	}
	rc.ctx = withMode(ctx, m)
	return rc
}

// splitArguments gives each replica its part of the arguments.
func (s *TPUStrategy) splitArguments(ctx context.Context, args []any) ([][]any, error) {
	mine := make([]any, len(args))
	for i, arg := range args { // what is another strategy's is copied, for as long as the code holds it
		var err error
		if mine[i], err = nesting.Map("split", arg, func(_ string, x any) (any, error) {
			if v, ok := x.(Value); ok && s.lifts(v) {
				t, err := s.take(ctx, "split", v)
				return t.value, err
			}
			return x, nil
		}); err != nil {
			return nil, fmt.Errorf("strategy: argument %d: %w", i, err)
		}
	}
	args = mine
	nests := make([][]any, s.replicas)
	for r := range nests {
		nests[r] = make([]any, len(args))
		for i, arg := range args {
			var err error
			if nests[r][i], err = s.SelectReplica(r, arg); err != nil {
				return nil, fmt.Errorf("strategy: argument %d: %w", i, err)
			}
		}
	}
	return nests, nil
}

// Strategy returns the strategy.
func (rc *EagerContext) Strategy() *TPUStrategy { return rc.strategy }

// Context returns the context of the replica's code: cross-replica calls that are
// given it are refused.
func (rc *EagerContext) Context() context.Context { return rc.ctx }

// ReplicaIDInSyncGroup returns the replica's number, from 0.
func (rc *EagerContext) ReplicaIDInSyncGroup() int {
	rc.one("ReplicaIDInSyncGroup")
	return rc.replica
}

// NumReplicasInSync returns the number of replicas.
func (rc *EagerContext) NumReplicasInSync() int { return rc.strategy.replicas }

// Device returns the name of the replica's device.
func (rc *EagerContext) Device() string {
	rc.one("Device")
	return rc.strategy.deviceName(rc.replica, columnOf(rc.ctx))
}

// join makes a joined call whose arguments and results are nests by replica.
func (rc *EagerContext) join(call string, arg any, run func(args []any) ([]any, error)) (any, error) {
	if rc.tracing != nil {
		return nil, &ContextError{Op: call, Reason: "called in an update of a compiled step, where it would run once and not in each run", Hint: insteadOfRunning}
	}
	return rc.coroutine.join(&request{call: call, arg: arg, run: run})
}

// outer is the context of a joined call: that of the run, for all replicas.
func (rc *EagerContext) outer() context.Context {
	m := mode{strategy: rc.strategy, update: -1}
	if rc.update {
		m.update = rc.replica
	}
	return withMode(rc.ctx, m)
}

// MergeCall joins the replicas and runs fn once, in cross-replica context, with
// the replicas' arguments regrouped: a tensor of each replica is a *[PerReplica].
// Its result is split again, a replica receiving its part: TensorFlow's merge_call.
// Functions that are called with the ctx that fn receives, such as
// [TPUStrategy.Reduce] and [Extended.Update], work inside it; the replica context
// does not. An error or a panic of fn is returned on every replica.
func (rc *EagerContext) MergeCall(fn func(ctx context.Context, args ...any) (any, error), args ...any) (any, error) {
	s := rc.strategy
	if err := rc.inReplica("MergeCall"); err != nil {
		return nil, err
	}
	return rc.join("MergeCall", args, func(all []any) ([]any, error) {
		columns, err := columnsOf("MergeCall", all)
		if err != nil {
			return nil, err
		}
		merged := make([]any, len(columns))
		for i, column := range columns {
			if merged[i], err = s.regroup(rc.outer(), "MergeCall", column, false); err != nil {
				return nil, err
			}
			if s.replicas == 1 {
				continue
			}
			// What a replica holds is its own, though it came from a mirrored value.
			if merged[i], err = nesting.Map("MergeCall", merged[i], func(_ string, x any) (any, error) {
				if m, ok := x.(*Mirrored); ok && m != nil {
					return rc.copyApart(m)
				}
				return x, nil
			}); err != nil {
				return nil, err
			}
		}
		result, err := fn(rc.outer(), merged...)
		if err != nil {
			return nil, err
		}
		if s.replicas == 1 {
			return s.giveBack(args, result)
		}
		return s.split(result)
	})
}

// giveBack is the one replica's part of what a merge call gave: an object that the
// replica gave comes back as it was.
func (s *TPUStrategy) giveBack(args []any, result any) ([]any, error) {
	var given []any
	if _, err := nesting.Map("MergeCall", args, func(_ string, x any) (any, error) {
		given = append(given, x)
		return nil, nil
	}); err != nil {
		return nil, err
	}
	part, err := nesting.Map("MergeCall", result, func(_ string, x any) (any, error) {
		for _, g := range given {
			if nesting.Same(g, x) {
				return x, nil
			}
		}
		return s.SelectReplica(0, x)
	})
	return []any{part}, err
}

// inReplica refuses what an update's function cannot do: it is no replica's code.
func (rc *EagerContext) inReplica(op string) error {
	if !rc.update {
		return nil
	}
	return &ContextError{Op: op, Reason: "called in an update, which has no replica context", Hint: "call it in the replicas' code, before the update"}
}

// columnsOf turns the replicas' argument lists into the arguments' lists by
// replica.
func columnsOf(call string, all []any) ([][]any, error) {
	first, _ := all[0].([]any)
	columns := make([][]any, len(first))
	for r := range all {
		mine, _ := all[r].([]any)
		if len(mine) != len(first) {
			return nil, fault.New(AssertionError, call, "give the same arguments on every replica", "replica %d has %d arguments, replica 0 %d", r, len(mine), len(first))
		}
		for i, x := range mine {
			columns[i] = append(columns[i], x)
		}
	}
	return columns, nil
}

// split gives each replica its part of a nest.
func (s *TPUStrategy) split(nest any) ([]any, error) {
	parts := make([]any, s.replicas)
	for r := range parts {
		var err error
		if parts[r], err = s.SelectReplica(r, nest); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// AllReduce combines the leaves of a nest over the replicas; each receives the
// result: TensorFlow's all_reduce. It is the same on all of them, and counts as mirrored
// where that is asked for: an update takes it. The replicas' tensors have one shape. The mean of
// integers is that of [TPUStrategy.Reduce].
func (rc *EagerContext) AllReduce(op ReduceOp, nest any) (any, error) {
	if err := rc.inReplica("AllReduce"); err != nil {
		return nil, err
	}
	return rc.collective("AllReduce", nest, func(v Value) builtinCall {
		return builtinCall{name: "all_reduce_" + op.String(), results: one(v.Annotation()),
			step: func(c *ReplicaContext, _ []*captured, in []*graph.Node) []*graph.Node {
				x := in[0]
				s := c.strategy
				switch integers := x.DType().IsInt(); {
				case s.replicas == 1 && (!number.Summable(x.DType()) || integers && s.opts.Semantics == TensorFlowMirrored):
					return in // there is nothing to add
				case !number.Summable(x.DType()):
					panic(number.Check("AllReduce", x.DType()))
				case op == Mean && integers && s.opts.Semantics != TensorFlowTPU:
					return []*graph.Node{c.meanOfIntegers(x)}
				}
				return []*graph.Node{c.AllReduce(op, x)}
			}}
	})
}

// AllGather concatenates the replicas' tensors along axis, in replica order; each
// receives the result. Sizes may differ along axis.
func (rc *EagerContext) AllGather(nest any, axis int) (any, error) {
	s := rc.strategy
	if err := rc.inReplica("AllGather"); err != nil {
		return nil, err
	}
	return rc.joinLeaves("AllGather", nest, func(v Value) (Value, error) {
		return asValue(s.gather(rc.outer(), v, axis))
	})
}

func (rc *EagerContext) collective(call string, nest any, program func(v Value) builtinCall) (any, error) {
	s := rc.strategy
	return rc.joinLeaves(call, nest, func(v Value) (Value, error) {
		c := program(v)
		c.values = []Value{v}
		results, err := s.call(rc.outer(), c)
		if err != nil {
			return nil, err
		}
		return asEqual(results[0]), nil
	})
}

// joinLeaves joins with a nest and replaces its leaves, each of which becomes one
// value of all replicas for the time of the call.
func (rc *EagerContext) joinLeaves(call string, nest any, run func(v Value) (Value, error)) (any, error) {
	s := rc.strategy
	return rc.join(call, nest, func(nests []any) ([]any, error) {
		out, err := nesting.Zip(call, nests, func(path string, leaves []any) (any, error) {
			v, release, err := s.merge(rc.outer(), call, leaves)
			if err != nil {
				return nil, err
			}
			defer release()
			if v.base().steps > 0 {
				return nil, fault.New(TypeError, call, "give the result of a step", "a value of several steps")
			}
			if v.base().ragged != nil && call != "AllGather" {
				return nil, fault.New(InvalidArgumentError, call, "give tensors of one shape", "the replicas' shapes differ: %v", v.base().ragged)
			}
			return run(v)
		})
		if err != nil {
			return nil, err
		}
		return s.split(out)
	})
}

// merge makes one value of the replicas' leaves: the value that they are
// components of, or a new one. Equal host values are mirrored.
func (s *TPUStrategy) merge(ctx context.Context, call string, leaves []any) (v Value, release func(), err error) {
	x, whole := asOne(leaves)
	if !whole {
		for _, x := range leaves {
			if err := s.ownsLeaf(call, x); err != nil {
				return nil, nil, err
			}
		}
		_, updating := UpdateReplicaID(ctx)
		if x, err = s.wrap(ctx, call, "", leaves, updating, logical.Annotation{}); err != nil {
			return nil, nil, err
		}
		if x, ok := x.(Value); ok {
			return x, func() { _ = x.Close() }, nil
		}
		return nil, nil, fault.New(TypeError, call, "give a tensor", "values that are no tensors: %v", x)
	}
	if err := s.taking(call, x); err != nil {
		return nil, nil, err
	}
	t, err := s.take(ctx, call, x)
	switch {
	case err != nil:
		return nil, nil, err
	case t.value == nil:
		return s.mirrorOnce(ctx, call, t.host)
	case t.value.base().steps > 0:
		return nil, nil, fault.New(TypeError, call, "give the result of a step", "a value of several steps")
	}
	return t.value, func() { _ = t.release() }, nil
}

func (s *TPUStrategy) mirrorOnce(ctx context.Context, call string, host any) (Value, func(), error) {
	m, err := s.Mirror(ctx, host, logical.Annotation{})
	if err != nil {
		return nil, nil, &Error{Op: "strategy: " + call, Reason: fmt.Sprintf("a value of type %T", host), Hint: "give a tensor", Err: err, Class: TypeError}
	}
	return m, func() { _ = m.Close() }, nil
}

// Call runs a compiled function on all replicas: each gives its arguments and
// receives its results. All give the same function.
func (rc *EagerContext) Call(f *Function, args ...any) ([]any, error) {
	s := rc.strategy
	if f == nil || f.strategy != s {
		return nil, &StrategyError{Op: "Call", Subject: "the function"}
	}
	out, err := rc.join("Call of "+f.opts.Name, args, func(all []any) ([]any, error) {
		columns, err := columnsOf("Call", all)
		if err != nil {
			return nil, err
		}
		values := make([]any, len(columns))
		for i, column := range columns {
			v, release, err := s.merge(rc.outer(), "Call", column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = v
		}
		results, err := f.Run(rc.outer(), values...)
		if err != nil {
			return nil, err
		}
		nest := make([]any, len(results))
		for i, x := range results {
			nest[i] = x
		}
		return s.split(nest)
	})
	if err != nil {
		return nil, err
	}
	return out.([]any), nil
}
