package contrib_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// meanOf is library code that is independent of the strategy.
func meanOf(ctx context.Context, x any) (any, error) {
	tc, ok := contrib.TowerContextOf(ctx)
	if !ok {
		return nil, errors.New("no tower")
	}
	return tc.MergeCall(func(ctx context.Context, d *contrib.DistributionStrategy, args ...any) (any, error) {
		return d.Reduce(ctx, "mean", args[0])
	}, x)
}

// The same library code runs outside of a scope, without devices, and in towers.
func TestOutsideEveryScopeThereIsTheDefaultTower(t *testing.T) {
	ctx := context.Background()
	tc, ok := contrib.TowerContextOf(ctx)
	require.True(t, ok)
	require.Zero(t, tc.TowerID())
	require.Equal(t, 1, tc.NumTowers())
	require.True(t, tc.IsSingleTower())
	require.Empty(t, tc.Device())
	require.Same(t, contrib.Default(), tc.DistributionStrategy())
	again, ok := contrib.TowerContextOf(tc.Context())
	require.True(t, ok)
	require.Same(t, tc, again)
	mean, err := meanOf(ctx, float32(3))
	require.NoError(t, err)
	require.Equal(t, float32(3), mean)

	nest := []any{1, "two"}
	got, err := tc.MergeCall(func(ctx context.Context, d *contrib.DistributionStrategy, args ...any) (any, error) {
		require.Same(t, contrib.Default(), d)
		require.Equal(t, []any{nest, 7}, args, "as they are")
		_, ok := contrib.TowerContextOf(ctx)
		require.False(t, ok, "in cross-tower context there is no tower")
		_, err := tc.MergeCall(nil)
		require.ErrorIs(t, err, strategy.ErrContext, "a merge call in a merge call")
		return d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			require.Zero(t, tc.TowerID())
			return meanOf(tc.Context(), args[0])
		}, "as it is")
	}, nest, 7)
	require.NoError(t, err)
	require.Equal(t, "as it is", got)
	_, err = tc.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) { panic("no") })
	require.ErrorAs(t, err, new(*errkind.PanicError))
	_, err = tc.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) { return nil, nil })
	require.NoError(t, err, "and the tower stays usable")

	d, scope := open(t, 2, 1, strategy.Options{})
	merged, err := d.CallForEachTower(scope, func(tc *contrib.TowerContext, args ...any) (any, error) {
		return meanOf(tc.Context(), args[0])
	}, ids(t, d, scope))
	require.NoError(t, err)
	require.Equal(t, []any{float32(1.5), float32(1.5)}, list(t, d, scope, merged))
}

func TestTheDefaultStrategyPassesValuesAsTheyAre(t *testing.T) {
	d := contrib.Default()
	ctx, err := d.Scope(context.Background())
	require.NoError(t, err)
	require.Nil(t, d.Strategy())
	require.True(t, d.IsSingleTower())
	require.Equal(t, 0, d.WorkerDeviceIndex())
	require.Empty(t, d.WorkerDevices())
	require.Empty(t, d.ParameterDevices())
	require.Empty(t, d.NonSlotDevices())
	x := tensors.FromValue([]float32{1, 2})
	for _, method := range []string{"sum", "mean"} {
		m, err := d.Reduce(ctx, method, x)
		require.NoError(t, err)
		require.Same(t, x, m.Value())
		require.Empty(t, m.Devices())
		_, err = m.Get("device")
		require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		again, err := d.BatchReduce(ctx, method, []contrib.ReducePair{{Value: m}, {Value: 5}})
		require.NoError(t, err)
		require.Same(t, x, again[0].Value(), "a Mirrored is its value")
		require.Equal(t, 5, again[1].Value())
		require.NoError(t, m.Close())
	}
	_, err = d.Reduce(ctx, "max", x)
	require.Equal(t, errkind.AssertionError, errkind.KindOf(err))
	m, err := d.Broadcast(ctx, x)
	require.NoError(t, err)
	host, err := d.Fetch(ctx, m, contrib.FetchOptions{})
	require.NoError(t, err)
	require.NotSame(t, x, host, "a copy")
	require.Equal(t, []float32{1, 2}, host.Value())
	host, err = d.Fetch(ctx, float32(4), contrib.FetchOptions{})
	require.NoError(t, err)
	require.Equal(t, float32(4), host.Value())
	require.Equal(t, errkind.AssertionError, errkind.KindOf(second(d.Fetch(ctx, struct{}{}, contrib.FetchOptions{}))))
	all, err := d.Unwrap(ctx, []any{m, 2})
	require.NoError(t, err)
	require.Equal(t, []any{[]any{x, 2}}, all)
	require.NoError(t, d.Group(ctx, m))
	got, err := d.UpdateNonSlot(ctx, nil, func(u *contrib.UpdateContext, args ...any) (any, error) {
		require.Nil(t, u.Variable())
		require.Empty(t, u.Device())
		require.Equal(t, errkind.ValueError, errkind.KindOf(second(u.Assign(1))), "a non-slot update has no variable")
		return args, nil
	}, m, "text")
	require.NoError(t, err)
	require.Equal(t, []any{x, "text"}, got)
}

// Operations that need devices return an error that names the alternative.
func TestTheDefaultStrategyHasNoDevices(t *testing.T) {
	d := contrib.Default()
	ctx, err := d.Scope(context.Background())
	require.NoError(t, err)
	tc, ok := contrib.TowerContextOf(context.Background())
	require.True(t, ok)
	local, err := d.TowerLocalVarScope(ctx, "sum")
	require.NoError(t, err)
	for name, err := range map[string]error{
		"variable":             second(d.GetVariable(ctx, "v", float32(1))),
		"tower-local variable": second(d.GetVariable(local, "v", float32(1))),
		"per device":           second(d.PerDevice(ctx, nil)),
		"broadcast":            second(d.Broadcast(ctx, 1, eager.ToDevices("device"))),
		"fetch":                second(d.Fetch(ctx, 1, contrib.FetchOptions{Function: new(strategy.Function)})),
		"dataset": second(d.DistributeDataset(ctx, func() (input.Dataset, error) {
			return input.Range(1),
				nil
		})),
		"colocate":            second(d.ColocateVarsWith(ctx, nil)),
		"colocate on devices": second(d.ColocateVarsWithDevices(ctx, nil)),
		"add":                 second(tc.Add(1, 2)),
		"sub":                 second(tc.Sub(1, 2)),
		"mul":                 second(tc.Mul(1, 2)),
		"div":                 second(tc.Div(1, 2)),
		"call":                second(tc.Call(nil)),
		"configure":           d.Configure(nil),
	} {
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		require.Contains(t, err.Error(), "; ", "%s: what to write instead", name)
	}
}

// The contexts of the default strategy and of others do not mix.
func TestTheDefaultStrategyIsOutsideOfEveryScope(t *testing.T) {
	s, scope := open(t, 2, 1, strategy.Options{})
	d := contrib.Default()
	cross, err := d.Scope(context.Background())
	require.NoError(t, err)
	_, err = d.Scope(cross)
	require.NoError(t, err, "its own scope again")
	require.ErrorIs(t, second(d.Scope(scope)), strategy.ErrContext, "scopes do not nest")
	inner, err := s.Scope(cross)
	require.NoError(t, err, "there is no strategy in the default's")
	_, ok := contrib.TowerContextOf(inner)
	require.False(t, ok)

	v, err := s.GetVariable(scope, "w", float32(1))
	require.NoError(t, err)
	first, err := s.GetVariable(scope, "a", float32(1))
	require.NoError(t, err)
	require.Equal(t, first.Devices(), d.NonSlotDevices(v, first))
	call := func(d *contrib.DistributionStrategy, ctx context.Context) map[string]error {
		return map[string]error{
			"call": second(d.CallForEachTower(ctx, func(*contrib.TowerContext, ...any) (any, error) { return nil, nil })),
			"update": second(d.Update(ctx, v, func(*contrib.UpdateContext, ...any) (any, error) {
				return nil, nil
			})),
			"reduce": second(d.Reduce(ctx, "sum", 1)), "broadcast": second(d.Broadcast(ctx, 1)), "group": d.Group(ctx, 1),
			"unwrap": second(d.Unwrap(ctx, 1)),
		}
	}
	tc, ok := contrib.TowerContextOf(context.Background())
	require.True(t, ok)
	for _, ctx := range []context.Context{context.Background(), tc.Context()} {
		for name, err := range call(d, ctx) {
			require.ErrorIs(t, err, strategy.ErrContext, "%s in the default tower", name)
		}
	}
	for name, err := range call(d, inner) {
		require.ErrorIs(t, err, strategy.ErrOtherStrategy, "%s in another strategy's scope", name)
	}
	for name, err := range call(s, cross) {
		require.ErrorIs(t, err, strategy.ErrContext, "%s of another strategy", name)
	}

	// An update receives the variable and the arguments unchanged. They still belong to their
	// strategy.
	x := ids(t, s, scope)
	ran := false
	got, err := d.Update(cross, v, func(u *contrib.UpdateContext, args ...any) (any, error) {
		ran = true
		require.Same(t, v, u.Variable())
		require.Equal(t, []any{v, x, 3}, args)
		require.ErrorIs(t, second(u.Read()), strategy.ErrContext)
		require.ErrorIs(t, second(u.AssignAdd(1)), strategy.ErrContext)
		return x, nil
	}, v, x, 3)
	require.NoError(t, err)
	require.True(t, ran)
	require.Same(t, x, got)
	require.Equal(t, errkind.AssertionError, errkind.KindOf(second(d.Update(cross, nil, nil))))

	// A tower of another strategy is not the default's, in eager code and in a compiled step.
	_, err = eager.Of(s.Strategy()).CallForEachReplica(tc.Context(), func(rc *eager.ReplicaContext, _ ...any) (any,
		error) {
		_, ok := contrib.TowerContextOf(rc.Context())
		assert.False(t, ok)
		return nil, nil
	})
	require.NoError(t, err)
	f := s.Strategy().Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		_, ok := contrib.TowerContextOf(rc.Context())
		assert.False(t, ok)
		for name, err := range call(d, rc.Context()) {
			assert.ErrorIs(t, err, strategy.ErrContext, name)
		}
		return in
	}, strategy.FunctionOptions{})
	_, err = f.Run(context.Background(), float32(1))
	require.NoError(t, err)
}
