package contrib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// DistributionStrategy implements the methods of TensorFlow 1.9's DistributionStrategy for a
// strategy. It is safe for concurrent use.
type DistributionStrategy struct {
	strategy *strategy.TPUStrategy

	mu        sync.Mutex
	variables map[*strategy.Variable]*Variable
	names     map[string]bool
}

// New returns a DistributionStrategy for a strategy. The caller must close the strategy. If New is
// called twice for one strategy, the results do not share variables.
func New(s *strategy.TPUStrategy) *DistributionStrategy {
	return &DistributionStrategy{strategy: s, variables: map[*strategy.Variable]*Variable{}, names: map[string]bool{}}
}

// Strategy returns the underlying strategy, or nil for [Default].
func (d *DistributionStrategy) Strategy() *strategy.TPUStrategy { return d.strategy }

// NumTowers returns the number of towers (replicas). It is TensorFlow's num_towers.
func (d *DistributionStrategy) NumTowers() int {
	if d == defaultStrategy {
		return 1
	}
	return d.strategy.NumReplicasInSync()
}

// IsSingleTower reports whether there is exactly one tower. It is TensorFlow's is_single_tower.
func (d *DistributionStrategy) IsSingleTower() bool { return d.NumTowers() == 1 }

// WorkerDevices returns the first logical device of each tower, in the order of the towers. It is
// TensorFlow's worker_devices.
func (d *DistributionStrategy) WorkerDevices() []string {
	if d == defaultStrategy {
		return nil
	}
	return eager.Of(d.strategy).WorkerDevices(context.Background())
}

// ParameterDevices returns the devices of variables, which are the same as the worker devices. It
// is TensorFlow's parameter_devices.
func (d *DistributionStrategy) ParameterDevices() []string { return d.WorkerDevices() }

// WorkerDeviceIndex returns the index of each worker device as a *[PerDevice], or the int 0 if
// there is a single tower. As an argument of CallForEachTower, it provides each tower with the
// index of its device. It is TensorFlow's worker_device_index.
func (d *DistributionStrategy) WorkerDeviceIndex() any {
	if d.IsSingleTower() {
		return 0
	}
	ids := make([]any, d.NumTowers())
	for i := range ids {
		ids[i] = i
	}
	return &PerDevice{perDevice{d, strategy.NewObjects(ids...)}}
}

// NonSlotDevices returns the devices for optimizer state that belongs to no variable. It is
// TensorFlow's non_slot_devices. Only the [Default] strategy uses the argument.
func (d *DistributionStrategy) NonSlotDevices(variables ...*Variable) []string {
	switch {
	case d != defaultStrategy:
		return eager.Of(d.strategy).NonSlotDevices()
	case len(variables) == 0:
		return nil
	}
	return slices.MinFunc(variables, func(a, b *Variable) int { return strings.Compare(a.Name(), b.Name()) }).Devices()
}

// Scope returns ctx with the strategy's cross-tower context, like DistributionStrategy.scope. The
// methods of this package require that context. If ctx is in the scope of another strategy, the
// error matches [strategy.ErrOtherStrategy]. If ctx is in a tower's code, it matches
// [strategy.ErrContext].
func (d *DistributionStrategy) Scope(ctx context.Context) (context.Context, error) {
	if d == defaultStrategy {
		if _, ok := eager.FromContext(ctx); ok {
			return nil, contextError("scope", "of the default strategy in the scope of another",
				"use the strategy that TowerContext or MergeCall gives")
		}
		return withDefaultCrossTower(ctx), nil
	}
	return eager.Of(d.strategy).Scope(ctx)
}

// requireCrossTower returns an error unless ctx is the cross-tower context of this strategy.
func (d *DistributionStrategy) requireCrossTower(ctx context.Context, op string) error {
	if err := d.requireOwnContext(ctx, op); err != nil {
		return err
	}
	cross := eager.InCrossReplicaContext(ctx)
	if d == defaultStrategy {
		cross, _ = ctx.Value(defaultKey{}).(bool)
	}
	if !cross {
		return contextError(op, "called in a tower's code", "call it before or after, or inside TowerContext.MergeCall")
	}
	return nil
}

// refuseTracing returns an error if a compiled step is being traced, because this package only
// executes eagerly.
func (d *DistributionStrategy) refuseTracing(ctx context.Context, op string) error {
	const instead = "use eager.MergeContext and eager.Extended there, or call it before or after the step"
	if d != defaultStrategy {
		return strategy.RefuseTracing(ctx, op, instead)
	}
	if strategy.Tracing(ctx) {
		return contextError(op, "called in a compiled step", instead)
	}
	return nil
}

// requireOwnContext returns an error unless ctx belongs to this strategy.
func (d *DistributionStrategy) requireOwnContext(ctx context.Context, op string) error {
	if err := d.refuseTracing(ctx, op); err != nil {
		return err
	}
	switch s, ok := eager.FromContext(ctx); {
	case !ok && d == defaultStrategy:
		return nil
	case !ok:
		return contextError(op, "called outside the strategy's scope", "give it the context that Scope returns")
	case s != d.strategy:
		return otherStrategyError(op, "the scope of the call")
	}
	return nil
}

type colocateKey struct{}

// ColocateVarsWith returns a context in which new variables are placed on the devices of v. It is
// TensorFlow's colocate_vars_with. ctx must be in the strategy's scope, cross-tower or in a tower.
func (d *DistributionStrategy) ColocateVarsWith(ctx context.Context, v *Variable) (context.Context, error) {
	if err := d.requireOwnContext(ctx, "colocate"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return nil, noDevicesError("colocate", "open a strategy, of one replica if need be")
	}
	if v == nil || v.d != d {
		return nil, newFault(errkind.ValueError, "colocate", "give a variable of this strategy",
			"no variable of this strategy")
	}
	return context.WithValue(ctx, colocateKey{}, v), nil
}

// ColocateVarsWithDevices returns a context in which new variables are placed on devices, for
// example the result of NonSlotDevices. Variables can only be on the worker devices; for a host
// device the error matches errors.ErrUnsupported.
func (d *DistributionStrategy) ColocateVarsWithDevices(ctx context.Context, devices []string) (context.Context, error) {
	if err := d.requireOwnContext(ctx, "colocate"); err != nil {
		return nil, err
	}
	if d == defaultStrategy || !slices.Equal(devices, d.WorkerDevices()) {
		return nil, fmt.Errorf(
			"contrib: variables on devices %q: %w; use a Go variable on the host, or GetVariable, which mirrors it", devices,
			errors.ErrUnsupported)
	}
	return ctx, nil
}

// Configure corresponds to DistributionStrategy.configure. It always returns an error that matches
// errors.ErrUnsupported, because there are no sessions.
func (d *DistributionStrategy) Configure(any) error {
	return fmt.Errorf("contrib: configure: there are no sessions: %w; set strategy.Options and the options of tpu/system",
		errors.ErrUnsupported)
}

// Group waits until all distributed values and variables in a nested structure are computed, like
// DistributionStrategy.group.
func (d *DistributionStrategy) Group(ctx context.Context, value any) error {
	if err := d.requireCrossTower(ctx, "group"); err != nil || d == defaultStrategy {
		return err
	}
	inner, err := d.unwrapValues("group", value)
	if err != nil {
		return err
	}
	inner, err = mapNest("group", inner, func(x any) (any, error) {
		if v, ok := x.(*Variable); ok && v != nil {
			return v.inner, nil
		}
		return x, nil
	})
	if err != nil {
		return err
	}
	return eager.Of(d.strategy).Group(ctx, inner)
}

// Unwrap returns the values of a distributed value in the order of the towers, like
// DistributionStrategy.unwrap. They are [eager.Component] values of a tensor or variable, or
// objects that are not tensors. For any other argument, including a nested structure, the list
// contains only the argument.
func (d *DistributionStrategy) Unwrap(ctx context.Context, value any) ([]any, error) {
	if err := d.requireCrossTower(ctx, "unwrap"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		inner, err := d.unwrapValues("unwrap", value)
		return []any{inner}, err
	}
	switch x := value.(type) {
	case *PerDevice, *Mirrored:
		inner, err := d.unwrapValues("unwrap", x)
		if err != nil {
			return nil, err
		}
		return eager.Of(d.strategy).LocalResultsOf(inner)
	case *Variable:
		if x == nil || x.d != d {
			return nil, otherStrategyError("unwrap", "the variable")
		}
		return eager.Of(d.strategy).LocalResultsOf(x.inner)
	}
	return []any{value}, nil
}
