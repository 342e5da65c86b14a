package contrib

import (
	"context"
	"errors"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var byDefault = &DistributionStrategy{}

// Default returns TensorFlow's default DistributionStrategy, which is in effect outside every
// scope, so that library code can ask for its tower in any case. It has one tower, whose number is
// 0, and no devices: host values go through its calls as they are. What needs devices is an error
// that matches [errors.ErrUnsupported] and names what to write instead.
//
//   - [TowerContextOf] gives its tower outside every scope, and MergeCall there and
//     [DistributionStrategy.Scope] its cross-tower context. Its scope is not entered in another
//     strategy's; another strategy's scope may be entered in its own.
//   - CallForEachTower, MergeCall, Update and UpdateNonSlot call the function once, with their
//     arguments as they are. A variable belongs to a strategy, and is read and written in its scope.
//   - Reduce, BatchReduce, and Broadcast without a destination, give a [Mirrored] whose Value is the
//     value that they were given, which stays the caller's. Fetch copies it.
//   - Unwrap gives a list of the value, and Group has nothing to wait for.
//   - There are no worker devices. The non-slot devices are those of the variable whose name comes
//     first.
func Default() *DistributionStrategy { return byDefault }

// defaultKey is true in the default strategy's cross-tower context.
type defaultKey struct{}

// crossDefault is the default strategy's cross-tower context.
func crossDefault(ctx context.Context) context.Context {
	return context.WithValue(ctx, defaultKey{}, true)
}

// towerOfDefault is the default strategy's tower.
func towerOfDefault(ctx context.Context) *TowerContext {
	tc := &TowerContext{d: byDefault}
	tc.ctx = context.WithValue(context.WithValue(ctx, defaultKey{}, false), towerKey{}, tc)
	return tc
}

// updateDefault calls the function of an update once, with the arguments as they are.
func updateDefault(ctx context.Context, op string, v *Variable, fn UpdateFunc, args []any) (any, error) {
	plain, err := byDefault.unwrapAll(op, args)
	if err != nil {
		return nil, err
	}
	u := &UpdateContext{d: byDefault, variable: v}
	u.ctx = context.WithValue(ctx, updateKey{}, u)
	return errkind.Guard("contrib: the update function", func() (any, error) { return fn(u, plain...) })
}

// mirroredDefault is a value as it is.
func mirroredDefault(op string, value any) (*Mirrored, error) {
	inner, err := byDefault.unwrap(op, value)
	if err != nil {
		return nil, err
	}
	return &Mirrored{perDevice{byDefault, inner}}, nil
}

// fetchDefault copies a host value.
func fetchDefault(value any, opts FetchOptions) (*tensors.Tensor, error) {
	switch {
	case opts.Function != nil:
		return nil, noDevices("fetch", "run a compiled function in a strategy's scope")
	case opts.Device != "":
		return nil, noDevices("fetch", "leave FetchOptions.Device empty")
	}
	inner, err := byDefault.unwrap("fetch", value)
	if err != nil {
		return nil, err
	}
	if t, ok := inner.(*tensors.Tensor); ok && t != nil {
		return t.LocalClone()
	}
	t, err := tensors.FromAnyValue(inner)
	if err != nil {
		return nil, &errkind.Fault{Op: "contrib: fetch", Reason: "what the default strategy has no copy of", Hint: "give a number or a tensor", Err: err, Class: errkind.AssertionError}
	}
	return t, nil
}

// noDevices is the error of a call that needs devices.
func noDevices(op, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "contrib: " + op, Reason: "the default strategy has no devices", Hint: hint, Err: errors.ErrUnsupported, Class: errkind.NotImplementedError}
}
