package contrib

import (
	"context"
	"errors"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var defaultStrategy = &DistributionStrategy{}

// Default returns TensorFlow's default DistributionStrategy, which is in effect outside of a scope,
// so that library code always has a tower. It has one tower with the number 0 and no devices. Host
// values pass through its methods unchanged. Operations that need devices return an error that
// matches [errors.ErrUnsupported] and names the alternative.
//
//   - [TowerContextOf] returns its tower outside of a scope. MergeCall in this tower, and
//     [DistributionStrategy.Scope], enter its cross-tower context. Its scope cannot be entered in
//     the scope of another strategy; the reverse is allowed.
//   - CallForEachTower, MergeCall, Update and UpdateNonSlot call the function once, with unchanged
//     arguments. A variable belongs to a strategy, and is read and written in its scope.
//   - Reduce, BatchReduce, and Broadcast without a destination return a [Mirrored] whose Value is
//     the unchanged argument. The caller remains its owner. Fetch copies the value.
//   - Unwrap returns a list with the value, and Group returns without waiting.
//   - There are no worker devices. NonSlotDevices returns the devices of the variable whose name is
//     first in alphabetical order.
func Default() *DistributionStrategy { return defaultStrategy }

// defaultKey is a context key. Its value is true in the default strategy's cross-tower context.
type defaultKey struct{}

func withDefaultCrossTower(ctx context.Context) context.Context {
	return context.WithValue(ctx, defaultKey{}, true)
}

func defaultTower(ctx context.Context) *TowerContext {
	tc := &TowerContext{d: defaultStrategy}
	tc.ctx = context.WithValue(context.WithValue(ctx, defaultKey{}, false), towerKey{}, tc)
	return tc
}

// updateDefault implements Update and UpdateNonSlot of the default strategy: it calls fn once, with
// unchanged arguments.
func updateDefault(ctx context.Context, op string, v *Variable, fn UpdateFunc, args []any) (any, error) {
	plain, err := defaultStrategy.unwrapArguments(op, args)
	if err != nil {
		return nil, err
	}
	u := &UpdateContext{d: defaultStrategy, variable: v}
	u.ctx = context.WithValue(ctx, updateKey{}, u)
	return errkind.CatchPanic("contrib: the update function", func() (any, error) { return fn(u, plain...) })
}

// mirrorDefault returns a Mirrored that contains the unchanged value.
func mirrorDefault(op string, value any) (*Mirrored, error) {
	inner, err := defaultStrategy.unwrapValues(op, value)
	if err != nil {
		return nil, err
	}
	return &Mirrored{perDevice{defaultStrategy, inner}}, nil
}

// fetchDefault implements Fetch of the default strategy: it copies a host value.
func fetchDefault(value any, opts FetchOptions) (*tensors.Tensor, error) {
	switch {
	case opts.Function != nil:
		return nil, noDevicesError("fetch", "run a compiled function in a strategy's scope")
	case opts.Device != "":
		return nil, noDevicesError("fetch", "leave FetchOptions.Device empty")
	}
	inner, err := defaultStrategy.unwrapValues("fetch", value)
	if err != nil {
		return nil, err
	}
	if t, ok := inner.(*tensors.Tensor); ok && t != nil {
		return t.LocalClone()
	}
	t, err := tensors.FromAnyValue(inner)
	if err != nil {
		return nil, &errkind.Fault{Op: "contrib: fetch", Reason: "what the default strategy has no copy of",
			Hint: "give a number or a tensor", Err: err, Class: errkind.AssertionError}
	}
	return t, nil
}

// noDevicesError returns an error for an operation that the default strategy does not support.
func noDevicesError(op, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "contrib: " + op, Reason: "the default strategy has no devices", Hint: hint,
		Err: errors.ErrUnsupported, Class: errkind.NotImplementedError}
}
