package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// Reduce reduces every leaf of a nest over the replicas: TensorFlow's Strategy.reduce. A leaf is a
// value, a variable or a host value; [strategy.TPUStrategy.Reduce], which takes one value, says how
// it is reduced. A host value is one value, not one for each replica: without axes its MEAN is the
// value itself, and its SUM an [*strategy.Error] of kind ValueError, unless the value is zero or
// there is one replica. With axes it counts as the same value on every replica.
//
// In a merge call of a compiled step, with [strategy.MergeContext.Context], Reduce takes and gives
// *[strategy.Merged] values and is part of the step.
func (e *Extended) Reduce(ctx context.Context, op strategy.ReduceOp, nest any, axes ...int) (any, error) {
	m := inner(e.strategy)
	if err := m.RequireCross(ctx, "reduce"); err != nil {
		return nil, err
	}
	if err := m.CheckReduce(op, "reduce"); err != nil {
		return nil, err
	}
	if t, err := merging(ctx, e.strategy, "reduce"); err != nil {
		return nil, err
	} else if t != nil {
		return t.ReduceNest(op, "reduce", nest, axes...)
	}
	if len(axes) == 0 {
		results, err := e.reduceNow(ctx, op, "reduce", []any{nest}, []place{{}})
		if err != nil {
			return nil, err
		}
		return results[0], nil
	}
	return nesting.Map("reduce", nest, func(_ string, x any) (any, error) { return m.ReduceAlong(ctx, op, x, axes) })
}

// Gather gathers every leaf of a nest, as [strategy.TPUStrategy.Gather] gathers one value:
// TensorFlow's Strategy.gather. A host value is one value and stays as it is; the components of a
// variable are gathered. In a merge call of a compiled step Gather is part of the step, as
// [Extended.Reduce] is.
func (e *Extended) Gather(ctx context.Context, nest any, axis int) (any, error) {
	s := e.strategy
	if err := inner(s).RequireCross(ctx, "gather"); err != nil {
		return nil, err
	}
	if t, err := merging(ctx, s, "gather"); err != nil {
		return nil, err
	} else if t != nil {
		return t.GatherNest(nest, axis)
	}
	return nesting.Map("gather", nest, func(_ string, x any) (any, error) {
		switch x := x.(type) {
		case strategy.Value:
			return s.Gather(ctx, x, axis)
		case *strategy.Variable:
			if err := inner(s).Owns("gather", x); err != nil {
				return nil, err
			}
			v, err := inner(s).Snapshot(ctx, x)
			if err != nil {
				return nil, err
			}
			defer v.Close()
			return s.Gather(ctx, v, axis)
		case *strategy.Objects:
			return nil, fault.New(strategy.TypeError, "gather", "return tensors from the replicas", "values that are no tensors: %s", x)
		}
		return x, nil
	})
}
