package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Updates in a merge call of a compiled step: the function is called once, and builds the graph of
// one component, which stands for all.

// updateIn is [Extended.Update] in a merge call; v is nil for a non-slot one.
func (e *Extended) updateIn(ctx context.Context, t *trace, op string, v *strategy.Variable, fn UpdateFunc, args []any) (any, error) {
	s := e.strategy
	rc := &ReplicaContext{strategy: s, update: true, host: v == nil && s.Semantics() != strategy.TensorFlowMirrored}
	if rc.tracing, rc.ctx = t, ctx; !rc.host {
		rc.tracing = &trace{MergeContext: t.MergeContext, component: true}
		rc.ctx = mode.With(ctx, mode.Mode{Strategy: s, Update: -1, Code: &componentCode{rc}})
	}
	return fault.Traced(func() any {
		mine := make([]any, len(args))
		for i, arg := range args {
			nest, err := nesting.Map(op, arg, func(path string, x any) (any, error) {
				return rc.updateArgument(op, fmt.Sprintf("%d%s", i, path), v, x)
			})
			if err != nil {
				panic(err)
			}
			mine[i] = nest
		}
		before := t.step.Built()
		result, err := fn(&UpdateContext{rc: rc, variable: v}, mine...)
		if err != nil {
			panic(err)
		}
		idle := v == nil && slices.Equal(before, t.step.Built())
		if result, err = nesting.Map(op, result, func(_ string, x any) (any, error) {
			switch x := x.(type) {
			case *graph.Node:
				if x != nil {
					idle = false
					return t.of(x), nil
				}
			case *MergeValue, *strategy.Variable:
				idle = false
			}
			return x, nil
		}); err != nil {
			panic(err)
		}
		if idle { // what it did, it did to Go values
			panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: "its function builds nothing of the compiled step, and would act once, while the step is traced, and not in each run",
				Hint: "keep the state in a variable that the function reads and writes, or call it before or after the step runs"})
		}
		return result
	})
}

// updateArgument is a component's part of a leaf of an update's arguments: a node of a merged
// value, otherwise what was given.
func (rc *ReplicaContext) updateArgument(op, where string, v *strategy.Variable, x any) (any, error) {
	t := rc.tracing
	if w, ok := x.(*strategy.Variable); ok {
		if err := inner(rc.strategy).Owns(op, w); err != nil {
			return nil, err
		}
		if needsMirrored(v) && w.Synchronization() == strategy.OnRead {
			return nil, fault.New(errkind.TypeError, op, "read it first", "argument %s, the sync-on-read variable %q, is not mirrored", where, w.Path())
		}
		return x, nil
	}
	switch x.(type) {
	case *MergeValue, *graph.Node, strategy.Value, Component, *strategy.Objects:
	default:
		return x, nil
	}
	m := t.value(op, x)
	if needsMirrored(v) && !m.Mirrored() {
		return nil, fault.New(errkind.TypeError, op, "reduce it first", "argument %s, %s, is not mirrored", where, m)
	}
	if rc.host && rc.varying(m) {
		return m, nil // as it is: it has no one node
	}
	return m.Node(), nil
}

// needsMirrored says whether an update's arguments have to be the same on all replicas.
func needsMirrored(v *strategy.Variable) bool {
	return v != nil && v.Aggregation() != strategy.AggregateNone && v.Synchronization() == strategy.OnWrite && v.Strategy().Semantics() != strategy.TensorFlowMirrored
}

// eachOf is what every component gave, by replica: the same where it is mirrored.
func (e *Extended) eachOf(t *trace, op string, nest any) ([]any, error) {
	return fault.Traced(func() []any {
		all := make([]any, e.strategy.NumReplicasInSync())
		parts := map[*MergeValue][]*MergeValue{}
		for r := range all {
			part, err := nesting.Map(op, nest, func(_ string, x any) (any, error) {
				m, ok := x.(*MergeValue)
				if !ok {
					return x, nil
				}
				if parts[m] == nil {
					parts[m] = t.LocalResults(m)
				}
				return parts[m][r], nil
			})
			if err != nil {
				panic(err)
			}
			all[r] = part
		}
		return all
	})
}

// one is the panic of what one trace has no answer to.
func (rc *ReplicaContext) one(op string) {
	if rc.tracing != nil {
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: "called in an update of a compiled step, which is traced once for all components",
			Hint: "write what is right for all of them, or use ReplicaContext.ReplicaIDInSyncGroup"})
	}
}

// binaryIn is [ReplicaContext.Add] and its kin.
func binaryIn(rc *ReplicaContext, name string, apply func(a, b *graph.Node) *graph.Node, a, b any) (any, error) {
	return fault.Traced(func() any {
		columns, err := operands(name, []any{[2]any{a, b}})
		if err != nil {
			panic(err)
		}
		var nodes [2]*graph.Node
		for _, i := range order(columns) {
			column := columns[i]
			if other := nodes[1-i]; other != nil && allNumbers(column) {
				if column, err = number.AllAs(name, column, other.DType()); err != nil {
					panic(err)
				}
			}
			nodes[i] = rc.operandIn(name, i, column[0])
		}
		if a, b := nodes[0].DType(), nodes[1].DType(); a != b {
			panic(fault.New(errkind.InvalidArgumentError, name, "convert one of them in the step", "a %s beside a %s", a, b))
		}
		return apply(nodes[0], nodes[1])
	})
}

// readIn is [ReplicaContext.Read], across is [ReplicaContext.ReadAcross].
func readIn(t *trace, v *strategy.Variable, across bool) (any, error) {
	return fault.Traced(func() any { return t.read(v, across) })
}

// writtenIn is a write in an update, and gives the component's new value.
func (rc *ReplicaContext) writtenIn(v *strategy.Variable, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return readIn(rc.tracing, v, rc.host)
}
