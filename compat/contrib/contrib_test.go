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
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// open returns a DistributionStrategy with the given number of towers of p logical devices, and its
// scope.
func open(t testing.TB, towers, p int, opts strategy.Options) (*contrib.DistributionStrategy, context.Context) {
	t.Helper()
	return scoped(t, strategytest.New(t, towers, p, opts))
}

// scoped returns a DistributionStrategy for a strategy, and its scope.
func scoped(t testing.TB, s *strategy.TPUStrategy) (*contrib.DistributionStrategy, context.Context) {
	t.Helper()
	d := contrib.New(s)
	ctx, err := d.Scope(context.Background())
	require.NoError(t, err)
	return d, ctx
}

func onMeshes(t *testing.T, run func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context)) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {3, 1}, {2, 2}}, func(t *testing.T, s *strategy.TPUStrategy) {
		d, ctx := scoped(t, s)
		run(t, d, ctx)
	})
}

// list copies the results of Unwrap to the host.
func list(t testing.TB, d *contrib.DistributionStrategy, ctx context.Context, value any) []any {
	t.Helper()
	all, err := d.Unwrap(ctx, value)
	require.NoError(t, err)
	for i, x := range all {
		switch x := x.(type) {
		case eager.Component:
			host, err := x.Local(ctx)
			require.NoError(t, err)
			all[i] = host.Value()
		case *tensors.Tensor: // with one tower, what its code returned
			all[i] = x.Value()
		}
	}
	return all
}

func ids(t testing.TB, d *contrib.DistributionStrategy, ctx context.Context) *contrib.PerDevice {
	t.Helper()
	values := map[string]any{}
	for i, device := range d.WorkerDevices() {
		values[device] = float32(i + 1)
	}
	x, err := d.PerDevice(ctx, values)
	require.NoError(t, err)
	return x
}

func TestTowersMeetInMergeCalls(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		n := d.NumTowers()
		merges := 0
		merged, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			v, err := tc.Add(args[0], tc.TowerID())
			if err != nil {
				return nil, err
			}
			sum, err := tc.MergeCall(func(ctx context.Context, d *contrib.DistributionStrategy, args ...any) (any, error) {
				merges++
				_, inTower := contrib.TowerContextOf(ctx)
				assert.False(t, inTower)
				m, err := d.Reduce(ctx, "sum", args[0])
				assert.NoError(t, err)
				return m, err
			}, v)
			if err != nil {
				return nil, err
			}
			return tc.Add(sum, v)
		}, tensors.FromScalar(int32(3)))
		require.NoError(t, err)
		require.Equal(t, 1, merges)
		var want []any
		for i := range n {
			want = append(want, int32(3*n+n*(n-1)/2+3+i))
		}
		require.Equal(t, want, list(t, d, ctx, merged))
	})
}

func TestTowersThatDoNotMeetFail(t *testing.T) {
	d, ctx := open(t, 3, 1, strategy.Options{})
	_, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		if tc.TowerID() == 1 {
			return nil, nil
		}
		return tc.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) { return nil, nil })
	})
	require.ErrorIs(t, err, eager.ErrJoin)
	require.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
	require.Equal(t, []any{float32(1), float32(2), float32(3)}, list(t, d, ctx, ids(t, d, ctx)), "usable afterwards")
}

func TestATowerReceivesItsPartOfTheArguments(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		v, err := d.GetVariable(ctx, "v", float32(7))
		require.NoError(t, err)
		type pair struct{ First, Second any }
		mirrored, err := d.Broadcast(ctx, float32(5))
		require.NoError(t, err)
		out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			assert.Equal(t, tc.TowerID(), args[0])
			assert.Equal(t, d.WorkerDevices()[tc.TowerID()], tc.Device())
			assert.Equal(t, d.NumTowers(), tc.NumTowers())
			assert.Equal(t, d.IsSingleTower(), tc.IsSingleTower())
			assert.Same(t, d, tc.DistributionStrategy())
			got, ok := contrib.TowerContextOf(tc.Context())
			assert.True(t, ok)
			assert.Same(t, tc, got)
			nest := args[1].(map[string]any)
			assert.Equal(t, "whole", nest["text"])
			c := nest["list"].([]any)[0].(eager.Component)
			assert.Equal(t, tc.TowerID(), c.Replica())
			return pair{nest["list"].([]any)[0], args[2]}, nil
		}, d.WorkerDeviceIndex(), map[string]any{"text": "whole", "list": []any{mirrored}}, v)
		require.NoError(t, err)
		got := out.(pair)
		require.Same(t, v, got.Second, "the components of a variable are the variable")
		require.IsType(t, (*contrib.Mirrored)(nil), got.First)
		require.Equal(t, list(t, d, ctx, mirrored), list(t, d, ctx, got.First))
	})
}

func TestReductionsGiveMirroredValues(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		n := d.NumTowers()
		x := ids(t, d, ctx)
		v, err := d.GetVariable(ctx, "v", float32(0))
		require.NoError(t, err)
		for method, want := range map[string]float32{"sum": float32(n*(n+1)) / 2, "mean": float32(n+1) / 2} {
			for name, to := range map[string][]eager.Destination{
				"where it is": nil, "a variable": {contrib.To(v)}, "the value itself": {contrib.To(x)},
				"devices": {eager.ToDevices(d.WorkerDevices()...)},
			} {
				m, err := d.Reduce(ctx, method, x, to...)
				require.NoError(t, err, name)
				for _, got := range list(t, d, ctx, m) {
					require.InDelta(t, want, got, 1e-6, "%s %s", method, name)
				}
				require.Len(t, list(t, d, ctx, m), n)
			}
		}
		both, err := d.BatchReduce(ctx, "sum", []contrib.ReducePair{{Value: x, To: []eager.Destination{contrib.To(v)}},
			{Value: x}})
		require.NoError(t, err)
		require.Len(t, both, 2)
		require.Equal(t, list(t, d, ctx, both[0]), list(t, d, ctx, both[1]))
		require.Equal(t, []any{float32(0)}, list(t, d, ctx, v)[:1], "a destination is not changed")
	})
}

func TestReductionsRefuseOtherNamesAndValues(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	x := ids(t, d, ctx)
	m, err := d.Broadcast(ctx, float32(1))
	require.NoError(t, err)
	v, err := d.GetVariable(ctx, "v", float32(1))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		method string
		value  any
		to     []eager.Destination
		kind   errkind.Kind
	}{
		"upper case":         {"SUM", x, nil, errkind.AssertionError},
		"unknown":            {"max", x, nil, errkind.AssertionError},
		"mirrored":           {"mean", m, nil, errkind.AssertionError},
		"mirrored variable":  {"mean", v, nil, errkind.AssertionError},
		"host value":         {"mean", float32(1), nil, errkind.AssertionError},
		"nil":                {"mean", nil, nil, errkind.AssertionError},
		"no value":           {"mean", (*contrib.PerDevice)(nil), nil, errkind.TypeError},
		"no destination":     {"sum", x, []eager.Destination{{}}, errkind.AssertionError},
		"unknown device":     {"sum", x, []eager.Destination{eager.ToDevices("/device:GPU:0")}, errkind.ValueError},
		"no variable":        {"sum", x, []eager.Destination{contrib.To((*contrib.Variable)(nil))}, errkind.AssertionError},
		"objects of no sort": {"sum", d.WorkerDeviceIndex(), nil, errkind.TypeError},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Reduce(ctx, c.method, c.value, c.to...)
			require.Error(t, err)
			require.Equal(t, c.kind, errkind.KindOf(err), "%v", err)
		})
	}
	_, err = d.BatchReduce(ctx, "sum", []contrib.ReducePair{{Value: x}, {Value: m}})
	require.ErrorContains(t, err, "value 1")

	single, ctx := open(t, 1, 1, strategy.Options{})
	one, err := single.Reduce(ctx, "sum", float32(4))
	require.NoError(t, err, "with one tower a host value will do")
	require.Equal(t, []any{float32(4)}, list(t, single, ctx, one))
}

func TestCrossTowerCallsWantTheirScope(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	other, otherCtx := open(t, 2, 1, strategy.Options{})
	x, y := ids(t, d, ctx), ids(t, other, otherCtx)
	v, err := d.GetVariable(ctx, "v", float32(0))
	require.NoError(t, err)
	foreign, err := other.GetVariable(otherCtx, "v", float32(0))
	require.NoError(t, err)
	calls := map[string]func(ctx context.Context) error{
		"call for each tower": func(ctx context.Context) error {
			_, err := d.CallForEachTower(ctx, func(*contrib.TowerContext, ...any) (any, error) { return nil, nil })
			return err
		},
		"reduce":       func(ctx context.Context) error { _, err := d.Reduce(ctx, "sum", x); return err },
		"batch reduce": func(ctx context.Context) error { _, err := d.BatchReduce(ctx, "sum", nil); return err },
		"broadcast":    func(ctx context.Context) error { _, err := d.Broadcast(ctx, 1); return err },
		"fetch":        func(ctx context.Context) error { _, err := d.Fetch(ctx, v, contrib.FetchOptions{}); return err },
		"unwrap":       func(ctx context.Context) error { _, err := d.Unwrap(ctx, x); return err },
		"group":        func(ctx context.Context) error { return d.Group(ctx, x) },
		"per device":   func(ctx context.Context) error { _, err := d.PerDevice(ctx, nil); return err },
		"update": func(ctx context.Context) error {
			_, err := d.Update(ctx, v, func(*contrib.UpdateContext, ...any) (any, error) { return nil, nil })
			return err
		},
		"update non-slot": func(ctx context.Context) error {
			_, err := d.UpdateNonSlot(ctx, d.NonSlotDevices(), func(*contrib.UpdateContext, ...any) (any, error) {
				return nil,
					nil
			})
			return err
		},
		"dataset": func(ctx context.Context) error { _, err := d.DistributeDataset(ctx, nil); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, call(context.Background()), strategy.ErrContext, "outside every scope")
			require.ErrorIs(t, call(otherCtx), strategy.ErrOtherStrategy, "another strategy's scope")
			_, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
				return nil,
					call(tc.Context())
			})
			require.ErrorIs(t, err, strategy.ErrContext, "a tower's code")
		})
	}
	for name, err := range map[string]error{
		"reduce":    second(d.Reduce(ctx, "sum", y)),
		"unwrap":    second(d.Unwrap(ctx, y)),
		"broadcast": second(d.Broadcast(ctx, float32(1), contrib.To(foreign))),
		"update": second(d.Update(ctx, foreign, func(*contrib.UpdateContext, ...any) (any, error) {
			return nil, nil
		})),
		"argument": second(d.CallForEachTower(ctx, func(*contrib.TowerContext, ...any) (any, error) { return nil, nil },
			[]any{foreign})),
		"scope": second(other.Scope(ctx)),
	} {
		require.ErrorIs(t, err, strategy.ErrOtherStrategy, name)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPerDeviceIsAMapFromDevicesToValues(t *testing.T) {
	d, ctx := open(t, 3, 1, strategy.Options{})
	devices := d.WorkerDevices()
	p, err := d.PerDevice(ctx, map[string]any{devices[2]: float32(30), devices[0]: float32(10), devices[1]: float32(20)})
	require.NoError(t, err)
	require.Equal(t, devices, p.Devices())
	require.Equal(t, []any{float32(10), float32(20), float32(30)}, list(t, d, ctx, p))
	x, err := p.Get(devices[1])
	require.NoError(t, err)
	host, err := x.(eager.Component).Local(ctx)
	require.NoError(t, err)
	require.Equal(t, float32(20), host.Value())
	require.True(t, p.OnDevice(devices[0]))
	require.False(t, p.OnDevice("/device:GPU:7"))
	_, err = p.Get("/device:GPU:7")
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	for _, bad := range []map[string]any{nil, {devices[0]: 1}, {devices[0]: 1, devices[1]: 1, "x": 1},
		{devices[0]: 1, devices[1]: 1, devices[2]: 1, "x": 1}} {
		_, err = d.PerDevice(ctx, bad)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	names, err := d.PerDevice(ctx, map[string]any{devices[0]: "a", devices[1]: "b", devices[2]: "c"})
	require.NoError(t, err)
	require.Equal(t, []any{"a", "b", "c"}, list(t, d, ctx, names), "what is no tensor stays on the host")
	require.NoError(t, p.Close())
	_, err = d.Reduce(ctx, "sum", p)
	require.ErrorIs(t, err, strategy.ErrClosed)
}

func TestFetchCopiesToTheHost(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		m, err := d.Broadcast(ctx, []float32{1, 2})
		require.NoError(t, err)
		v, err := d.GetVariable(ctx, "v", []float32{3, 4})
		require.NoError(t, err)
		double := d.Strategy().Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[0])}
		}, strategy.FunctionOptions{Name: "double"})
		last := d.WorkerDevices()[d.NumTowers()-1]
		for _, c := range []struct {
			value any
			opts  contrib.FetchOptions
			want  []float32
		}{
			{m, contrib.FetchOptions{}, []float32{1, 2}},
			{m, contrib.FetchOptions{Device: last, Function: double}, []float32{2, 4}},
			{v, contrib.FetchOptions{Device: "/device:CPU:0"}, []float32{3, 4}},
			{v, contrib.FetchOptions{Function: double}, []float32{6, 8}},
		} {
			got, err := d.Fetch(ctx, c.value, c.opts)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Value())
		}
		for _, bad := range []any{ids(t, d, ctx), float32(1), nil, "x"} {
			_, err = d.Fetch(ctx, bad, contrib.FetchOptions{})
			require.Equal(t, errkind.AssertionError, errkind.KindOf(err), "%T", bad)
		}
		for _, device := range []string{"nonsense", "/device:TPU:99", last + "0"} {
			_, err = d.Fetch(ctx, v, contrib.FetchOptions{Device: device})
			require.Equal(t, errkind.ValueError, errkind.KindOf(err), device)
			require.ErrorContains(t, err, device)
		}
	})
}

func TestWhatHasNoMeaningNamesTheAlternative(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	err := d.Configure(nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "strategy.Options")
	_, err = d.ColocateVarsWithDevices(ctx, d.NonSlotDevices())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "GetVariable")
	_, err = d.ColocateVarsWithDevices(context.Background(), d.WorkerDevices())
	require.ErrorIs(t, err, strategy.ErrContext)

	mirrored, ctx := open(t, 2, 1, strategy.Options{Semantics: strategy.TensorFlowMirrored})
	ctx, err = mirrored.ColocateVarsWithDevices(ctx, mirrored.NonSlotDevices())
	require.NoError(t, err, "there the non-slot devices are the worker devices")
	v, err := mirrored.GetVariable(ctx, "beta1_power", float32(0.9))
	require.NoError(t, err)
	require.Equal(t, mirrored.NonSlotDevices(v), v.Devices())
}

func TestGroupWaitsForNests(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	v, err := d.GetVariable(ctx, "v", float32(0))
	require.NoError(t, err)
	x := ids(t, d, ctx)
	require.NoError(t, d.Group(ctx, []any{x, map[string]any{"v": v, "n": 3}}))
	require.NoError(t, x.Close())
	require.ErrorIs(t, d.Group(ctx, []any{x}), strategy.ErrClosed)
	cyclic := []any{nil}
	cyclic[0] = cyclic
	require.Equal(t, errkind.ValueError, errkind.KindOf(d.Group(ctx, cyclic)))
}
