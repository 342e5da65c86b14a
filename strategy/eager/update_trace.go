package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// An update in a merge call of a compiled step calls its function once, to add the operations of one
// component to the step. Every replica executes them for its own component.

// traceUpdate traces an update function in a merge call of a compiled step. v is nil for
// [Extended.UpdateNonSlot].
func (e *Extended) traceUpdate(ctx context.Context, mc *MergeContext, op string, v *strategy.Variable, fn UpdateFunc,
	args []any) (any, error) {
	s := e.strategy
	rc := &ReplicaContext{strategy: s, ctx: ctx, inUpdate: true, onHost: v == nil &&
		s.Semantics() != strategy.TensorFlowMirrored, tracing: mc}
	if !rc.onHost {
		rc.ctx = mode.With(ctx, mode.Mode{Strategy: s, Update: -1, Code: &componentCode{rc}})
	}
	return fault.CatchPanic(func() any {
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
		before := engine.Internal(mc.rc).BuildState()
		result, err := fn(&UpdateContext{rc: rc, variable: v}, mine...)
		if err != nil {
			panic(err)
		}
		idle := v == nil && slices.Equal(before, engine.Internal(mc.rc).BuildState())
		if result, err = nesting.Map(op, result, func(_ string, x any) (any, error) {
			switch x := x.(type) {
			case *graph.Node:
				if x != nil {
					idle = false
					return mc.value(op, x), nil
				}
			case *MergeValue, *strategy.Variable:
				idle = false
			}
			return x, nil
		}); err != nil {
			panic(err)
		}
		if idle { // it can only have changed Go values
			panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
				Reason: "its function builds nothing of the compiled step, and would act once, while the step is traced, and " +
					"not in each run",
				Hint: "keep the state in a variable that the function reads and writes, or call it before or after the step runs"})
		}
		return result
	})
}

// updateArgument converts an argument for a traced update function. It returns the graph node of a
// distributed value, and any other argument unchanged.
func (rc *ReplicaContext) updateArgument(op, where string, v *strategy.Variable, x any) (any, error) {
	switch x.(type) {
	case *strategy.Variable:
		if err := engine.Internal(rc.strategy).CheckOwned(op, x); err != nil {
			return nil, err
		}
		return x, checkMirrored(op, where, v, x)
	case *MergeValue, *graph.Node, strategy.Value, Component, *strategy.Objects:
	default:
		return x, nil
	}
	m := rc.tracing.value(op, x)
	if err := checkMirrored(op, where, v, m); err != nil {
		return nil, err
	}
	if rc.onHost && rc.isVarying(m) {
		return m, nil // it has no single node
	}
	return m.node, nil
}

// requireOne panics if op is called while an update function is traced. A trace runs once for all
// components, but op returns a different result for each component.
func (rc *ReplicaContext) requireOne(op string) {
	if rc.tracing != nil {
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
			Reason: "called in an update of a compiled step, which is traced once for all components",
			Hint:   "write what is right for all of them, or use ReplicaContext.ReplicaIDInSyncGroup"})
	}
}
