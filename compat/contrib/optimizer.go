package contrib

import (
	"context"
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Gradient is a variable and its gradient on the towers, like a pair of TensorFlow's
// grads_and_vars. If Value is nil, the variable has no gradient and is not updated.
type Gradient struct {
	Value    any
	Variable *Variable
}

// DistributedApply sums gradients over the towers, in one program, and updates their variables. It
// is TensorFlow's Optimizer._distributed_apply for an optimizer that is written as an UpdateFunc.
// apply is called for each tower's component of each variable; its argument is the component of the
// summed gradient. Then finish, if not nil, runs on the devices of NonSlotDevices, and step, if not
// nil, is incremented by one.
//
// If there is no gradient at all, the error is a ValueError. If a gradient cannot be summed, no
// variable is updated. An error of apply or finish stops the call, and earlier updates remain.
func (d *DistributionStrategy) DistributedApply(ctx context.Context, gradients []Gradient, apply, finish UpdateFunc,
	step *Variable) (err error) {
	const op = "distributed apply"
	if err := d.requireCrossTower(ctx, op); err != nil {
		return err
	}
	if apply == nil {
		return newFault(errkind.TypeError, op, "give the optimizer's update of a component", "no function")
	}
	var pairs []ReducePair
	var variables []*Variable
	for _, g := range gradients {
		switch {
		case g.Value == nil:
			continue
		case g.Variable == nil:
			return newFault(errkind.AssertionError, op, "give a variable of this strategy", "a gradient without a variable")
		}
		pairs, variables = append(pairs, ReducePair{g.Value, []eager.Destination{To(g.Variable)}}), append(variables,
			g.Variable)
	}
	if len(pairs) == 0 {
		return newFault(errkind.ValueError, op, "make the loss depend on a variable", "no gradients for any variable")
	}
	reduced, err := d.BatchReduce(ctx, "sum", pairs)
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range reduced {
			err = errors.Join(err, m.Close())
		}
	}()
	for i, v := range variables {
		if _, err := d.Update(ctx, v, apply, reduced[i]); err != nil {
			return err
		}
	}
	if finish != nil {
		if _, err := d.UpdateNonSlot(ctx, d.NonSlotDevices(variables...), finish); err != nil {
			return err
		}
	}
	if step == nil {
		return nil
	}
	_, err = d.Update(ctx, step, func(u *UpdateContext, _ ...any) (any, error) { return u.AssignAdd(1) })
	return err
}
