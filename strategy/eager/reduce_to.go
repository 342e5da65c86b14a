package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// reduceTo implements [Extended.BatchReduceTo].
func (e *Extended) reduceTo(ctx context.Context, call string, op strategy.ReduceOp, pairs []ReducePair) ([]any, error) {
	mc, err := e.checkReduction(ctx, op, call)
	if err != nil {
		return nil, err
	}
	values, places := make([]any, len(pairs)), make([]placement, len(pairs))
	for i, pair := range pairs {
		values[i] = pair.Value
		if places[i], err = e.placementOf(call, pair.To); err != nil {
			return nil, fault.WithIndex(i, len(pairs), err)
		}
	}
	if mc == nil {
		return e.reduceNow(ctx, op, call, values, places)
	}
	for i, value := range values {
		if values[i], err = mc.reduceTo(call, op, value, places[i]); err != nil {
			return nil, fault.WithIndex(i, len(pairs), err)
		}
	}
	return values, nil
}

// ReduceTo reduces a value, or each value of a nest, over the replicas and stores the result at a
// destination (see [To] and [ToDevices]), like TensorFlow's reduce_to. It reduces like
// [Extended.Reduce] without axes. If the destination is a value or a variable, it is not modified.
// The caller owns the result. This is a *[strategy.Mirrored] on the devices of the destination, or
// a *tensors.Tensor if the destination is a host. In a merge call of a compiled step, with
// [MergeContext.Context], ReduceTo accepts and returns *[MergeValue] values and is part of the
// step.
//
// ReduceTo returns the errors of Reduce, an *[strategy.Error] of kind ValueError for a device that
// does not belong to the strategy and of kind AssertionError for the zero Destination, and
// [strategy.ErrOtherStrategy] for a destination of another strategy.
func (e *Extended) ReduceTo(ctx context.Context, op strategy.ReduceOp, value any, to Destination) (any, error) {
	results, err := e.reduceTo(ctx, "reduce to", op, []ReducePair{{value, to}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ReducePair is a value that [Extended.BatchReduceTo] reduces, and the destination of the result.
type ReducePair struct {
	Value any
	To    Destination
}

// BatchReduceTo reduces several values with one program, each like [Extended.ReduceTo]. It returns
// the results in the order of the pairs and corresponds to TensorFlow's batch_reduce_to. If one
// value cannot be reduced, no value is reduced, and the error contains the index of this value.
func (e *Extended) BatchReduceTo(ctx context.Context, op strategy.ReduceOp, pairs []ReducePair) ([]any, error) {
	return e.reduceTo(ctx, "batch reduce to", op, pairs)
}
