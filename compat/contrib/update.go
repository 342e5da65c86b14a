package contrib

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// UpdateContext gives an update function access to one tower's component of the variable. Use it
// only inside that function.
type UpdateContext struct {
	Arithmetic
	d        *DistributionStrategy
	variable *Variable
	device   string
	ctx      context.Context
}

// UpdateFunc updates one tower's component of a variable. args are the components of the update's
// arguments for this tower.
type UpdateFunc func(u *UpdateContext, args ...any) (any, error)

type updateKey struct{}

// Context returns the context in which the update function reads and writes variables.
func (u *UpdateContext) Context() context.Context { return u.ctx }

// Variable returns the updated variable, or nil in a call of UpdateNonSlot.
func (u *UpdateContext) Variable() *Variable { return u.variable }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string { return u.device }

// Read returns the current value of the component.
func (u *UpdateContext) Read() (any, error) {
	if u.variable == nil {
		return nil, u.noVariableError("read")
	}
	return u.variable.Read(u.ctx)
}

// Assign writes the component and returns its new value.
func (u *UpdateContext) Assign(x any) (any, error) { return u.write("assign", (*Variable).Assign, x) }

// AssignAdd adds to the component.
func (u *UpdateContext) AssignAdd(x any) (any, error) {
	return u.write("assign_add", (*Variable).AssignAdd, x)
}

// AssignSub subtracts from the component.
func (u *UpdateContext) AssignSub(x any) (any, error) {
	return u.write("assign_sub", (*Variable).AssignSub, x)
}

func (u *UpdateContext) write(op string, write func(*Variable, context.Context, any) (any, error), x any) (any, error) {
	if u.variable == nil {
		return nil, u.noVariableError(op)
	}
	return write(u.variable, u.ctx, x)
}

func (u *UpdateContext) noVariableError(op string) error {
	return newFault(errkind.ValueError, op, "use Update", "a non-slot update has no variable")
}

// Update runs fn for each tower's component of the variable, like DistributionStrategy.update. The
// arguments must be mirrored: a [PerDevice] that may differ between towers, or a tower-local
// variable, is a TypeError. fn receives the components of the arguments on its device, also for
// mirrored variables. The results are merged as in CallForEachTower.
func (d *DistributionStrategy) Update(ctx context.Context, v *Variable, fn UpdateFunc, args ...any) (any, error) {
	if err := d.requireCrossTower(ctx, "update"); err != nil {
		return nil, err
	}
	switch {
	case v == nil:
		return nil, newFault(errkind.AssertionError, "update", "give a variable of this strategy", "no variable")
	case d == defaultStrategy:
		return updateDefault(ctx, "update", v, fn, args)
	case v.d != d:
		return nil, otherStrategyError("update", fmt.Sprintf("variable %q", v.Name()))
	}
	return d.update(fmt.Sprintf("update %q", v.Name()), v, fn, args, func(fn eager.UpdateFunc, args []any) (any, error) {
		return eager.Of(d.strategy).Update(ctx, v.inner, fn, args...)
	})
}

// UpdateNonSlot updates optimizer state that belongs to no variable. It runs fn on the devices of
// NonSlotDevices, with mirrored arguments. It is TensorFlow's update_non_slot. fn runs once, on the
// first host, or once for each device if the strategy has MirroredStrategy's semantics. fn must not
// write variables.
func (d *DistributionStrategy) UpdateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args ...any) (any,
	error) {
	const op = "update non-slot"
	if err := d.requireCrossTower(ctx, op); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return updateDefault(ctx, op, nil, fn, args)
	}
	return d.update(op, nil, fn, args, func(fn eager.UpdateFunc, args []any) (any, error) {
		return eager.Of(d.strategy).UpdateNonSlot(ctx, devices, fn, args...)
	})
}

// update checks that args are mirrored, and calls run with the arguments and with fn converted to
// an update function of package eager. v is nil for UpdateNonSlot.
func (d *DistributionStrategy) update(op string, v *Variable, fn UpdateFunc, args []any,
	run func(fn eager.UpdateFunc, args []any) (any, error)) (any, error) {
	inner, err := d.unwrapMirrored(op, args)
	if err != nil {
		return nil, err
	}
	result, err := run(func(su *eager.UpdateContext, args ...any) (any, error) {
		u := &UpdateContext{Arithmetic: Arithmetic{su.Ops()}, d: d, variable: v, device: su.Device()}
		u.ctx = context.WithValue(su.Context(), updateKey{}, u)
		return d.callTower(op, su.ReplicaID(), args, func(args ...any) (any, error) { return fn(u, args...) })
	}, inner)
	if err != nil {
		return nil, err
	}
	return d.wrapValues(op, result)
}

// isMirrored reports whether the value is known to be the same on every tower.
func (p *PerDevice) isMirrored() bool {
	if p == nil {
		return false
	}
	v, ok := p.value.(*strategy.PerReplica)
	return ok && v.Mirrored()
}

// unwrapMirrored converts arguments to values of package strategy. It returns an error for
// values that may differ between towers.
func (d *DistributionStrategy) unwrapMirrored(op string, args []any) ([]any, error) {
	for i, arg := range args {
		if _, err := mapNest(op, arg, func(x any) (any, error) {
			switch p := x.(type) {
			case *PerDevice:
				if !p.isMirrored() {
					return nil, newFault(errkind.TypeError, op, "reduce it first", "argument %d, %v, is not mirrored", i, p)
				}
			case *Variable:
				if p != nil && p.TowerLocal() {
					return nil, newFault(errkind.TypeError, op, "reduce it first", "argument %d, %v, is not mirrored", i, p)
				}
			}
			return x, nil
		}); err != nil {
			return nil, err
		}
	}
	return d.unwrapArguments(op, args)
}
