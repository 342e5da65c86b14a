package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// mergeContext checks that ctx allows a cross-replica call. If ctx belongs to a merge call of a
// compiled step, it returns the MergeContext of this call, and otherwise nil.
func (e *Extended) mergeContext(ctx context.Context, op string) (*MergeContext, error) {
	if err := engine.Internal(e.strategy).CheckCrossReplica(ctx, op); err != nil {
		return nil, err
	}
	code, err := engine.Internal(e.strategy).MergeCall(ctx, op)
	if code == nil {
		return nil, err
	}
	return code.(mergeCode).MergeContext, nil
}

func (mc *MergeContext) value(op string, x any) *MergeValue {
	m, _ := mc.operand(op, x, nil)
	return m
}

// mapLeaves replaces each leaf of a nest by the result of f. The parameter host of f is true if the
// leaf is a host value.
func (mc *MergeContext) mapLeaves(call string, nest any, f func(m *MergeValue, x any, host bool) any) (any, error) {
	return nesting.Map(call, nest, func(_ string, x any) (any, error) {
		return fault.CatchPanic(func() any {
			m, host := mc.operand(call, x, nil)
			return f(m, x, host)
		})
	})
}

func (mc *MergeContext) reduceNest(op strategy.ReduceOp, call string, nest any, axes ...int) (any, error) {
	return mc.mapLeaves(call, nest, func(m *MergeValue, x any, host bool) any {
		switch v, _ := x.(*strategy.Variable); {
		case len(axes) > 0:
		case host:
			if err := checkOneValue(call, op, mc.Strategy(), x); err != nil {
				panic(err)
			}
			return x
		case v != nil && v.LocalWrites() && op == strategy.Mean:
			return mc.Read(v)
		}
		return mc.Reduce(op, m, axes...)
	})
}

// reduceTo implements [Extended.ReduceTo] in a merge call of a compiled step.
func (mc *MergeContext) reduceTo(call string, op strategy.ReduceOp, nest any, to placement) (any, error) {
	if to.host || to.only != nil {
		return nil, &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + call,
			Reason: "to a host or to some devices, in a compiled step that runs on all",
			Hint:   "give a variable, a value or all worker devices, or return it and reduce it after the run"}
	}
	reduced, err := mc.reduceNest(op, call, nest)
	if err != nil {
		return nil, err
	}
	return mapMergeValues(call, reduced, func(m *MergeValue) *MergeValue {
		return mc.newValue(logical.Apply(m.node, to.annotationFor(m.Shape().Dimensions, logical.Annotation{})),
			m.mirrored)
	})
}

// broadcast implements [Extended.BroadcastTo] in a merge call of a compiled step.
func (mc *MergeContext) broadcast(value any) (any, error) {
	return mapMergeValues("broadcast", value, func(m *MergeValue) *MergeValue {
		if m.mirrored {
			return m
		}
		return mc.newValue(engine.Internal(mc.rc).FirstReplica(m.node), true)
	})
}

// mapMergeValues replaces each *MergeValue in a nest by the result of f.
func mapMergeValues(call string, nest any, f func(m *MergeValue) *MergeValue) (any, error) {
	return nesting.Map(call, nest, func(_ string, x any) (any, error) {
		m, ok := x.(*MergeValue)
		if !ok {
			return x, nil
		}
		return fault.CatchPanic(func() any { return f(m) })
	})
}

// setComponent writes a variable in an update function. A compiled step traces the function once,
// so the write applies to all components.
func (mc *MergeContext) setComponent(op string, w assign.Op, v *strategy.Variable, x any) error {
	_, err := fault.CatchPanic(func() any {
		m, _ := mc.operand(op, x, v)
		if !m.mirrored && !componentsVary(v) {
			panic(fault.Unequal(op))
		}
		return engine.Internal(mc.rc).WriteVariable(op, v, m.node, w.Apply)
	})
	return err
}

// splitNest converts a nest with *[MergeValue] leaves to one nest for each replica.
func (mc *MergeContext) splitNest(op string, nest any) ([]any, error) {
	return fault.CatchPanic(func() []any {
		all := make([]any, mc.rc.NumReplicasInSync())
		parts := map[*MergeValue][]*MergeValue{}
		for r := range all {
			part, err := nesting.Map(op, nest, func(_ string, x any) (any, error) {
				m, ok := x.(*MergeValue)
				if !ok {
					return x, nil
				}
				if parts[m] == nil {
					parts[m] = mc.LocalResults(m)
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
