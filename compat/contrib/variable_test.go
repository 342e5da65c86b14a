package contrib_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func local(t testing.TB, d *contrib.DistributionStrategy, ctx context.Context, method, name string,
	initial any) *contrib.Variable {
	t.Helper()
	ctx, err := d.TowerLocalVarScope(ctx, method)
	require.NoError(t, err)
	v, err := d.GetVariable(ctx, name, initial)
	require.NoError(t, err)
	require.True(t, v.TowerLocal())
	require.False(t, v.Trainable())
	require.Equal(t, method, v.ReduceMethod())
	return v
}

func inUpdate(d *contrib.DistributionStrategy, ctx context.Context, of *contrib.Variable,
	f func(ctx context.Context) error) error {
	_, err := d.Update(ctx, of, func(u *contrib.UpdateContext, _ ...any) (any, error) { return nil, f(u.Context()) })
	return err
}

func inTower(d *contrib.DistributionStrategy, ctx context.Context, f func(ctx context.Context) error) error {
	_, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		return nil,
			f(tc.Context())
	})
	return err
}

func inMerge(d *contrib.DistributionStrategy, ctx context.Context, f func(ctx context.Context) error) error {
	_, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		return tc.MergeCall(func(ctx context.Context, _ *contrib.DistributionStrategy, _ ...any) (any, error) {
			return nil,
				f(ctx)
		})
	})
	return err
}

func TestVariablesAreWrittenWhereTheirKindAllows(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		mirrored, err := d.GetVariable(ctx, "mirrored", float32(1))
		require.NoError(t, err)
		require.True(t, mirrored.Trainable())
		require.Empty(t, mirrored.ReduceMethod())
		other, err := d.GetVariable(ctx, "other", float32(1))
		require.NoError(t, err)
		sum := local(t, d, ctx, "sum", "sum", float32(1))
		writes := map[string]func(v *contrib.Variable) func(ctx context.Context) error{
			"assign": func(v *contrib.Variable) func(context.Context) error {
				return func(ctx context.Context) error { return second(v.Assign(ctx, 2)) }
			},
			"assign_add": func(v *contrib.Variable) func(context.Context) error {
				return func(ctx context.Context) error { return second(v.AssignAdd(ctx, 2)) }
			},
			"assign_sub": func(v *contrib.Variable) func(context.Context) error {
				return func(ctx context.Context) error { return second(v.AssignSub(ctx, 2)) }
			},
		}
		nonSlot := func(f func(context.Context) error) error {
			_, err := d.UpdateNonSlot(ctx, d.NonSlotDevices(), func(u *contrib.UpdateContext, _ ...any) (any,
				error) {
				return nil, f(u.Context())
			})
			return err
		}
		for name, write := range writes {
			// Where it is allowed.
			require.NoError(t, inUpdate(d, ctx, mirrored, write(mirrored)), name)
			require.NoError(t, inUpdate(d, ctx, other, write(mirrored)), "%s in another's update", name)
			require.NoError(t, inTower(d, ctx, write(sum)), name)
			// Where it is not.
			for where, err := range map[string]error{
				"mirrored outside": write(mirrored)(context.Background()),
				"mirrored scope":   write(mirrored)(ctx),
				"mirrored tower":   inTower(d, ctx, write(mirrored)),
				"mirrored merge":   inMerge(d, ctx, write(mirrored)),
				"mirrored no slot": nonSlot(write(mirrored)),
				"local outside":    write(sum)(context.Background()),
				"local scope":      write(sum)(ctx),
				"local merge":      inMerge(d, ctx, write(sum)),
				"local update":     inUpdate(d, ctx, mirrored, write(sum)),
				"local own update": inUpdate(d, ctx, sum, write(sum)),
			} {
				require.ErrorIs(t, err, strategy.ErrContext, "%s: %s", name, where)
				require.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
			}
		}
		// Each write was made twice, or once, on every component and left no trace
		// where it was refused. Map order does not matter: set to 2 at the end.
		require.NoError(t, inUpdate(d, ctx, mirrored, writes["assign"](mirrored)))
		for _, got := range list(t, d, ctx, mirrored) {
			require.Equal(t, float32(2), got)
		}
	})
}

func TestTowerLocalVariablesCombineWhereTheyAreRead(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		n := d.NumTowers()
		for method, want := range map[string]float32{"sum": float32(n*(n+1)) / 2, "mean": float32(n+1) / 2} {
			v := local(t, d, ctx, method, method, float32(0))
			out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
				if _, err := v.AssignAdd(tc.Context(), tensors.FromScalar(float32(tc.TowerID()+1))); err != nil {
					return nil, err
				}
				return v.Read(tc.Context())
			})
			require.NoError(t, err)
			for i, got := range list(t, d, ctx, out) {
				require.Equal(t, float32(i+1), got, "a tower sees its own")
			}
			require.Equal(t, list(t, d, ctx, out), list(t, d, ctx, v))
			across, err := v.Read(ctx)
			require.NoError(t, err)
			fetched, err := d.Fetch(ctx, v, contrib.FetchOptions{})
			require.NoError(t, err)
			saved, err := v.Save(ctx)
			require.NoError(t, err)
			reduced, err := d.Reduce(ctx, method, v)
			require.NoError(t, err)
			for _, got := range append(append(list(t, d, ctx, across), list(t, d, ctx, reduced)...), fetched.Value(),
				saved.Value()) {
				require.InDelta(t, want, got, 1e-6)
			}
		}
	})
}

func TestRestoringASumMultipliesByItsShare(t *testing.T) {
	for _, c := range []struct {
		method string
		saved  float32
		want   float32
	}{
		// 7 * (1/3) and 7 / 3 round differently in float32.
		{"sum", 7, 7 * float32(1.0/3)},
		{"mean", 7, 7},
		{"", 7, 7},
	} {
		d, ctx := open(t, 3, 1, strategy.Options{})
		var v *contrib.Variable
		var err error
		if c.method == "" {
			v, err = d.GetVariable(ctx, "v", float32(0))
			require.NoError(t, err)
		} else {
			v = local(t, d, ctx, c.method, "v", float32(0))
		}
		require.NoError(t, v.Restore(ctx, tensors.FromScalar(c.saved)))
		for _, got := range list(t, d, ctx, v) {
			require.Equal(t, c.want, got, c.method)
		}
		back, err := v.Save(ctx)
		require.NoError(t, err)
		require.InDelta(t, c.saved, back.Value(), 1e-6)
		require.Equal(t, errkind.ValueError, errkind.KindOf(v.Restore(ctx, tensors.FromValue([]float32{1}))))
	}
	d, ctx := open(t, 2, 1, strategy.Options{})
	counter := local(t, d, ctx, "sum", "counter", int32(0))
	err := counter.Restore(ctx, tensors.FromScalar(int32(7)))
	require.Equal(t, errkind.TypeError, errkind.KindOf(err))
	require.ErrorContains(t, err, "RestoreValue")
	require.Error(t, counter.Restore(ctx, nil))
}

func TestUpdateFollowsTheReducedGradient(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		n := d.NumTowers()
		v, err := d.GetVariable(ctx, "w", float32(5))
		require.NoError(t, err)
		gradients := ids(t, d, ctx)
		reduced, err := d.Reduce(ctx, "sum", gradients, contrib.To(v))
		require.NoError(t, err)
		seen := 0
		out, err := d.Update(ctx, v, func(u *contrib.UpdateContext, args ...any) (any, error) {
			assert.Equal(t, d.WorkerDevices()[seen], u.Device())
			assert.Same(t, v, u.Variable())
			seen++
			old, err := u.Read()
			if err != nil {
				return nil, err
			}
			step, err := u.Mul(args[0], 0.5)
			if err != nil {
				return nil, err
			}
			next, err := u.Sub(old, step)
			if err != nil {
				return nil, err
			}
			return u.Assign(next)
		}, reduced)
		require.NoError(t, err)
		require.Equal(t, n, seen, "once for each component")
		want := 5 - float32(n*(n+1))/4
		for _, x := range []any{out, v} {
			for _, got := range list(t, d, ctx, x) {
				require.Equal(t, want, got)
			}
		}
		add := func(u *contrib.UpdateContext, args ...any) (any, error) { return u.AssignAdd(args[0].([]any)[0]) }
		nothing := func(u *contrib.UpdateContext, args ...any) (any, error) { return nil, nil }
		_, err = d.Update(ctx, v, add, []any{gradients})
		_, nonSlot := d.UpdateNonSlot(ctx, d.NonSlotDevices(), nothing, gradients)
		require.Equal(t, errkind.TypeError, errkind.KindOf(err))
		require.ErrorContains(t, err, "reduce it first")
		require.Equal(t, errkind.TypeError, errkind.KindOf(nonSlot))
		// The result of the same computation on a mirrored value is the same on all towers.
		same, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			return tc.Mul(args[0],
				2)
		}, reduced)
		require.NoError(t, err)
		require.IsType(t, (*contrib.PerDevice)(nil), same)
		_, err = d.Update(ctx, v, add, []any{same})
		require.NoError(t, err)
		_, err = d.Update(ctx, nil, nil)
		require.Equal(t, errkind.AssertionError, errkind.KindOf(err))
	})
}

func TestNonSlotUpdatesRunOnTheirDevices(t *testing.T) {
	for semantics, runs := range map[strategy.Semantics]int{strategy.OwnSemantics: 1, strategy.TensorFlowMirrored: 2} {
		d, ctx := open(t, 2, 1, strategy.Options{Semantics: semantics})
		var devices []string
		out, err := d.UpdateNonSlot(ctx, d.NonSlotDevices(), func(u *contrib.UpdateContext, args ...any) (any, error) {
			devices = append(devices, u.Device())
			for _, f := range []func() (any, error){u.Read, func() (any, error) { return u.Assign(1) },
				func() (any, error) { return u.AssignAdd(1) }, func() (any, error) { return u.AssignSub(1) }} {
				_, err := f()
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "there is no variable")
			}
			return args[0], nil
		}, "state")
		require.NoError(t, err)
		require.Equal(t, "state", out)
		require.Len(t, devices, runs)
		require.Equal(t, d.NonSlotDevices(), devices)
		_, err = d.UpdateNonSlot(ctx, nil, nil)
		require.Equal(t, errkind.AssertionError, errkind.KindOf(err))
	}
}

func TestVariablesAreMadeOnceForAllTowers(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		calls := 0
		out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
			ctx, err := d.TowerLocalVarScope(tc.Context(), "mean")
			if err != nil {
				return nil, err
			}
			return d.GetVariable(ctx, "shared", func() any { calls++; return float32(10 + tc.TowerID()) })
		})
		require.NoError(t, err)
		v := out.(*contrib.Variable)
		require.Equal(t, 1, calls)
		require.True(t, v.TowerLocal())
		for _, got := range list(t, d, ctx, v) {
			require.Equal(t, float32(10), got, "the first tower's value")
		}
		for _, name := range []string{"shared", ""} {
			_, err = d.GetVariable(ctx, name, float32(0))
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		}
		require.NoError(t, v.Close())
		_, err = d.GetVariable(ctx, "shared", float32(0))
		require.NoError(t, err, "a closed variable's name is free")
		_, err = d.GetVariable(ctx, "nothing", nil)
		require.Equal(t, errkind.TypeError, errkind.KindOf(err))
		_, err = d.TowerLocalVarScope(ctx, "max")
		require.Equal(t, errkind.AssertionError, errkind.KindOf(err))
		_, err = d.TowerLocalVarScope(context.Background(), "sum")
		require.ErrorIs(t, err, strategy.ErrContext)
		_, err = d.GetVariable(context.Background(), "nowhere", float32(0))
		require.ErrorIs(t, err, strategy.ErrContext)
	})
}

func TestColocatedVariablesShareDevices(t *testing.T) {
	d, ctx := open(t, 2, 2, strategy.Options{})
	column, err := eager.Of(d.Strategy()).LogicalDevice(ctx, 1)
	require.NoError(t, err)
	v, err := d.GetVariable(column, "primary", []float32{1, 2})
	require.NoError(t, err)
	require.NotEqual(t, d.WorkerDevices(), v.Devices())
	with, err := d.ColocateVarsWith(ctx, v)
	require.NoError(t, err)
	slot, err := d.GetVariable(with, "slot", []float32{0, 0})
	require.NoError(t, err)
	require.Equal(t, v.Devices(), slot.Devices())
	_, err = d.ColocateVarsWith(ctx, nil)
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	_, err = d.ColocateVarsWith(context.Background(), v)
	require.ErrorIs(t, err, strategy.ErrContext)

	// A variable that is split over the logical devices is written like any other.
	split, ctx := open(t, 2, 2, strategy.Options{Variables: logical.Rules{logical.Match("split", logical.SplitInto(2))}})
	w, err := split.GetVariable(ctx, "split", []float32{1, 2})
	require.NoError(t, err)
	require.NoError(t, inUpdate(split, ctx, w,
		func(ctx context.Context) error { return second(w.AssignAdd(ctx, tensors.FromValue([]float32{10, 20}))) }))
	require.Equal(t, []any{[]float32{11, 22}, []float32{11, 22}}, list(t, split, ctx, w))
	require.Equal(t, 4, w.Variable().BytesPerDevice())
}
