package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
	"github.com/tpustrategy/tpustrategy/strategy/internal/number"
)

// Updates in a merge call of a compiled step: the function is called once, and builds
// the graph of one component, which stands for all.

// update is [Extended.Update] in a merge call; v is nil for a non-slot one.
func (t *tracing) update(ctx context.Context, op string, v *Variable, fn UpdateFunc, args []any) (any, error) {
	s := t.rc.strategy
	return traced(func() any {
		mine := make([]any, len(args))
		for i, arg := range args {
			nest, err := nesting.Map(op, arg, func(path string, x any) (any, error) { return t.updateArgument(op, fmt.Sprintf("%d%s", i, path), v, x) })
			if err != nil {
				panic(err)
			}
			mine[i] = nest
		}
		inner := &tracing{rc: t.rc, merge: t.merge, updating: true}
		rc := &EagerContext{strategy: s, update: true, tracing: inner}
		rc.ctx = withTracing(withMode(ctx, mode{strategy: s, update: -1, updater: rc}), inner)
		result, err := fn(&UpdateContext{rc: rc, variable: v}, mine...)
		if err == nil {
			result, err = nesting.Map(op, result, func(_ string, x any) (any, error) {
				if node, ok := x.(*graph.Node); ok && node != nil {
					return t.merge.of(node), nil
				}
				return x, nil
			})
		}
		if err != nil {
			panic(err)
		}
		return result
	})
}

// updateArgument is a component's part of a leaf of an update's arguments: a node of a
// merged value, otherwise what was given.
func (t *tracing) updateArgument(op, where string, v *Variable, x any) (any, error) {
	if w, ok := x.(*Variable); ok {
		if err := t.rc.strategy.ownsVariable(op, w); err != nil {
			return nil, err
		}
		if needsMirrored(v) && w.synchronization == OnRead {
			return nil, fault.New(TypeError, op, "read it first", "argument %s, the sync-on-read variable %q, is not mirrored", where, w.path)
		}
		return x, nil
	}
	switch x.(type) {
	case *Merged, *graph.Node, Value, *Component, *Objects:
	default:
		return x, nil
	}
	m, _ := t.merged(op, x, nil)
	if needsMirrored(v) && !m.mirrored {
		return nil, fault.New(TypeError, op, "reduce it first", "argument %s, %s, is not mirrored", where, m)
	}
	return m.node, nil
}

// needsMirrored says whether an update's arguments have to be the same on all replicas.
func needsMirrored(v *Variable) bool {
	return v != nil && v.aggregation != AggregateNone && v.synchronization == OnWrite && v.strategy.opts.Semantics != TensorFlowMirrored
}

// each is what every component gave, by replica: the same where it is mirrored.
func (t *tracing) each(op string, nest any) ([]any, error) {
	return traced(func() []any {
		all := make([]any, t.rc.strategy.replicas)
		parts := map[*Merged][]*Merged{}
		for r := range all {
			part, err := nesting.Map(op, nest, func(_ string, x any) (any, error) {
				m, ok := x.(*Merged)
				if !ok {
					return x, nil
				}
				if parts[m] == nil {
					parts[m] = t.merge.LocalResults(m)
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
func (rc *EagerContext) one(op string) {
	if rc.tracing != nil {
		panic(&ContextError{Op: op, Reason: "called in an update of a compiled step, which is traced once for all components",
			Hint: "write what is right for all of them, or use ReplicaContext.ReplicaIDInSyncGroup"})
	}
}

// node is a value of the update as a node.
func (t *tracing) node(op string, x any) *graph.Node {
	m, _ := t.merged(op, x, nil)
	return m.node
}

// binary is [EagerContext.Add] and its kin.
func (t *tracing) binary(name string, apply func(a, b *graph.Node) *graph.Node, a, b any) (any, error) {
	return traced(func() any {
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
			nodes[i] = t.node(name, column[0])
		}
		if a, b := nodes[0].DType(), nodes[1].DType(); a != b {
			panic(fault.New(InvalidArgumentError, name, "convert one of them in the step", "a %s beside a %s", a, b))
		}
		return apply(nodes[0], nodes[1])
	})
}

// read is [EagerContext.Read], across is [EagerContext.ReadAcross].
func (t *tracing) read(v *Variable, across bool) (any, error) {
	return traced(func() any {
		if across {
			return t.merge.Read(v).node
		}
		return t.rc.capture("Read", v).now
	})
}

// written is a write in an update, and gives the component's new value.
func (t *tracing) written(v *Variable, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t.read(v, false)
}
