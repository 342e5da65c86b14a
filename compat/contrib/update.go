package contrib

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// UpdateContext gives the function of an update one component of the variable, on its device. Use
// it inside the function alone.
type UpdateContext struct {
	Arithmetic
	d        *DistributionStrategy
	variable *Variable
	device   string
	ctx      context.Context
}

// UpdateFunc updates one component of a variable. args are the component's part of
// the update's arguments.
type UpdateFunc func(u *UpdateContext, args ...any) (any, error)

type updateKey struct{}

// Context returns the context of the update: cross-tower, with the component's number.
// Variables are read and written through it.
func (u *UpdateContext) Context() context.Context { return u.ctx }

// Variable returns the variable that is updated, nil for a non-slot update.
func (u *UpdateContext) Variable() *Variable { return u.variable }

// Device returns the name of the component's device.
func (u *UpdateContext) Device() string { return u.device }

// Read returns the component as it is now.
func (u *UpdateContext) Read() (any, error) {
	if u.variable == nil {
		return nil, u.none("read")
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
		return nil, u.none(op)
	}
	return write(u.variable, u.ctx, x)
}

func (u *UpdateContext) none(op string) error {
	return fault(errkind.ValueError, op, "use Update", "a non-slot update has no variable")
}

// Update runs fn on each component of the variable, as DistributionStrategy.update does. The
// arguments have to be mirrored: a [PerDevice] among the nests that may differ between the towers,
// or a tower-local variable, is an error of kind TypeError. Arguments are unwrapped, mirrored
// variables too, so that fn receives the components that lie beside its own. The results are merged
// as CallForEachTower merges.
func (d *DistributionStrategy) Update(ctx context.Context, v *Variable, fn UpdateFunc, args ...any) (any, error) {
	if err := d.requireCross(ctx, "update"); err != nil {
		return nil, err
	}
	switch {
	case v == nil:
		return nil, fault(errkind.AssertionError, "update", "give a variable of this strategy", "no variable")
	case d == byDefault:
		return updateDefault(ctx, "update", v, fn, args)
	case v.d != d:
		return nil, otherStrategy("update", fmt.Sprintf("variable %q", v.Name()))
	}
	return d.update(fmt.Sprintf("update %q", v.Name()), v, fn, args, func(fn eager.UpdateFunc, args []any) (any, error) {
		return eager.Of(d.strategy).Update(ctx, v.inner, fn, args...)
	})
}

// UpdateNonSlot runs fn on the devices that NonSlotDevices gives, with mirrored arguments as they
// are: TensorFlow's update_non_slot. It runs once, on the first host, or once for each device if
// the strategy has MirroredStrategy's semantics. fn writes no variable.
func (d *DistributionStrategy) UpdateNonSlot(ctx context.Context, devices []string, fn UpdateFunc, args ...any) (any, error) {
	const op = "update non-slot"
	if err := d.requireCross(ctx, op); err != nil {
		return nil, err
	}
	if d == byDefault {
		return updateDefault(ctx, op, nil, fn, args)
	}
	return d.update(op, nil, fn, args, func(fn eager.UpdateFunc, args []any) (any, error) {
		return eager.Of(d.strategy).UpdateNonSlot(ctx, devices, fn, args...)
	})
}

// update gives run, a call of package eager, the function of an update of a variable or of none, and its
// mirrored arguments.
func (d *DistributionStrategy) update(op string, v *Variable, fn UpdateFunc, args []any, run func(fn eager.UpdateFunc, args []any) (any, error)) (any, error) {
	inner, err := d.mirroredArguments(op, args)
	if err != nil {
		return nil, err
	}
	result, err := run(func(su *eager.UpdateContext, args ...any) (any, error) {
		u := &UpdateContext{Arithmetic: Arithmetic{su.Ops()}, d: d, variable: v, device: su.Device()}
		u.ctx = context.WithValue(su.Context(), updateKey{}, u)
		return d.call(op, su.ReplicaID(), args, func(args ...any) (any, error) { return fn(u, args...) })
	}, inner)
	if err != nil {
		return nil, err
	}
	return d.wrap(op, result)
}

// mirrored says whether the value is known to be the same on every tower.
func (p *PerDevice) mirrored() bool {
	if p == nil {
		return false
	}
	v, ok := p.value.(*strategy.PerReplica)
	return ok && v.Mirrored()
}

// mirroredArguments unwraps arguments and refuses values that may differ between towers.
func (d *DistributionStrategy) mirroredArguments(op string, args []any) ([]any, error) {
	for i, arg := range args {
		if _, err := mapNest(op, arg, func(x any) (any, error) {
			switch p := x.(type) {
			case *PerDevice:
				if !p.mirrored() {
					return nil, fault(errkind.TypeError, op, "reduce it first", "argument %d, %v, is not mirrored", i, p)
				}
			case *Variable:
				if p != nil && p.TowerLocal() {
					return nil, fault(errkind.TypeError, op, "reduce it first", "argument %d, %v, is not mirrored", i, p)
				}
			}
			return x, nil
		}); err != nil {
			return nil, err
		}
	}
	return d.unwrapAll(op, args)
}
