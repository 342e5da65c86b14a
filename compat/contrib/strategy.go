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

// New returns a DistributionStrategy for a strategy. The caller must close the strategy. Two
// results of New for the same strategy do not share variables.
func New(s *strategy.TPUStrategy) *DistributionStrategy {
	return &DistributionStrategy{strategy: s, variables: map[*strategy.Variable]*Variable{}, names: map[string]bool{}}
}

// Strategy returns the underlying strategy, or nil for [Default].
func (d *DistributionStrategy) Strategy() *strategy.TPUStrategy { return d.strategy }

// NumTowers returns the number of towers, which are the replicas of the strategy. It is
// TensorFlow's num_towers.
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

// ParameterDevices returns the devices of variables, which are the worker devices. It is
// TensorFlow's parameter_devices.
func (d *DistributionStrategy) ParameterDevices() []string { return d.WorkerDevices() }

// WorkerDeviceIndex returns the index of each worker device as a *[PerDevice], or the int 0 if
// there is a single tower. Pass it to CallForEachTower, so that each tower receives the index of
// its device. It is TensorFlow's worker_device_index.
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

// NonSlotDevices returns the devices for state that belongs to no variable. It is TensorFlow's
// non_slot_devices. Only the [Default] strategy uses the variables.
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
// methods of this package require that context. In the scope of another strategy the error matches
// [strategy.ErrOtherStrategy], and in a tower's code [strategy.ErrContext].
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

// requireCross returns an error unless ctx is the strategy's own cross-tower context.
func (d *DistributionStrategy) requireCross(ctx context.Context, op string) error {
	if err := d.requireOwn(ctx, op); err != nil {
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

// refuseTracing returns an error if a compiled step is being traced, because this package executes
// eagerly.
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

// requireOwn returns an error unless ctx is a context of the strategy.
func (d *DistributionStrategy) requireOwn(ctx context.Context, op string) error {
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
	if err := d.requireOwn(ctx, "colocate"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return nil, noDevicesError("colocate", "open a strategy, of one replica if need be")
	}
	if v == nil || v.d != d {
		return nil, fault(errkind.ValueError, "colocate", "give a variable of this strategy", "no variable of this strategy")
	}
	return context.WithValue(ctx, colocateKey{}, v), nil
}

// ColocateVarsWithDevices returns a context in which new variables are placed on devices, such as
// those of NonSlotDevices. Variables can only be on the worker devices; for a host device the error
// matches errors.ErrUnsupported.
func (d *DistributionStrategy) ColocateVarsWithDevices(ctx context.Context, devices []string) (context.Context, error) {
	if err := d.requireOwn(ctx, "colocate"); err != nil {
		return nil, err
	}
	if d == defaultStrategy || !slices.Equal(devices, d.WorkerDevices()) {
		return nil, fmt.Errorf("contrib: variables on devices %q: %w; use a Go variable on the host, or GetVariable, which mirrors it", devices, errors.ErrUnsupported)
	}
	return ctx, nil
}

// Configure corresponds to DistributionStrategy.configure. It always returns an error that matches
// errors.ErrUnsupported, because there are no sessions.
func (d *DistributionStrategy) Configure(any) error {
	return fmt.Errorf("contrib: configure: there are no sessions: %w; set strategy.Options and the options of tpu/system", errors.ErrUnsupported)
}

// Group waits until all distributed values and variables of a nest are computed, like
// DistributionStrategy.group.
func (d *DistributionStrategy) Group(ctx context.Context, value any) error {
	if err := d.requireCross(ctx, "group"); err != nil || d == defaultStrategy {
		return err
	}
	inner, err := d.unwrap("group", value)
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

// Unwrap returns the list of the values of a distributed value, in the order of the towers, like
// DistributionStrategy.unwrap. These are the [eager.Component]s of a tensor or variable, or the
// objects of a value that is not a tensor. For anything else, including nests, the list has value
// as its only element.
func (d *DistributionStrategy) Unwrap(ctx context.Context, value any) ([]any, error) {
	if err := d.requireCross(ctx, "unwrap"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		inner, err := d.unwrap("unwrap", value)
		return []any{inner}, err
	}
	switch x := value.(type) {
	case *PerDevice, *Mirrored:
		inner, err := d.unwrap("unwrap", x)
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
