package contrib

import (
	"context"
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Gradient is the towers' gradient of a variable: a pair of TensorFlow's grads_and_vars. A nil
// Value says that the variable has none, and stays as it is.
type Gradient struct {
	Value any
	Of    *Variable
}

// DistributedApply sums gradients over the towers, in one program, and updates their variables:
// TensorFlow's Optimizer._distributed_apply, for an optimizer that is written as the function of an
// update. apply runs on each component of each variable, with the component of the summed gradient
// as its argument. Then finish runs on the non-slot devices, unless it is nil, and step, unless it
// is nil, grows by one.
//
// No gradient at all is an error of kind ValueError. If one gradient cannot be summed, no variable
// is updated; the errors of apply and finish end the call where it is.
func (d *DistributionStrategy) DistributedApply(ctx context.Context, gradients []Gradient, apply, finish UpdateFunc, step *Variable) (err error) {
	const op = "distributed apply"
	if err := d.requireCross(ctx, op); err != nil {
		return err
	}
	if apply == nil {
		return fault(errkind.TypeError, op, "give the optimizer's update of a component", "no function")
	}
	var pairs []ReducePair
	var variables []*Variable
	for _, g := range gradients {
		switch {
		case g.Value == nil:
			continue
		case g.Of == nil:
			return fault(errkind.AssertionError, op, "give a variable of this strategy", "a gradient without a variable")
		}
		pairs, variables = append(pairs, ReducePair{g.Value, []eager.Destination{To(g.Of)}}), append(variables, g.Of)
	}
	if len(pairs) == 0 {
		return fault(errkind.ValueError, op, "make the loss depend on a variable", "no gradients for any variable")
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
