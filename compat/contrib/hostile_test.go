package contrib_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

func TestNumbersTakeTheDTypeBesideThem(t *testing.T) {
	d, ctx := open(t, 2, 2, strategy.Options{})
	for name, c := range map[string]struct {
		fn   func(tc *contrib.TowerContext) (any, error)
		want []any
	}{
		"an int beside int32": {func(tc *contrib.TowerContext) (any, error) {
			return tc.Add(tensors.FromScalar(int32(3)),
				tc.TowerID())
		}, []any{int32(3), int32(4)}},
		"an int before float32": {func(tc *contrib.TowerContext) (any, error) { return tc.Sub(tc.TowerID(), float32(0.5)) },
			[]any{float32(-0.5), float32(0.5)}},
		"a float64 beside vector": {func(tc *contrib.TowerContext) (any, error) {
			return tc.Mul([]float32{1, 2}, tensors.FromScalar(float32(tc.TowerID())))
		}, []any{[]float32{0, 0}, []float32{1, 2}}},
		"a float64 per tower": {func(tc *contrib.TowerContext) (any, error) {
			return tc.Div(tensors.FromScalar(float32(8)), float64(tc.TowerID()+1))
		}, []any{float32(8), float32(4)}},
		"two ints": {func(tc *contrib.TowerContext) (any, error) { return tc.Add(tc.TowerID(), 10) },
			[]any{int64(10), int64(11)}},
		"an int beside int32 Go": {func(tc *contrib.TowerContext) (any, error) { return tc.Add(int32(1), tc.TowerID()) },
			[]any{int32(1), int32(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) { return c.fn(tc) })
			require.NoError(t, err)
			require.Equal(t, c.want, list(t, d, ctx, out))
		})
	}
	_, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, _ ...any) (any, error) {
		return tc.Add(tensors.FromScalar(int32(1)), 0.5+float64(tc.TowerID()))
	})
	require.Error(t, err, "a fraction is not cut off to fit an integer")
}

func TestTowersCallCompiledFunctions(t *testing.T) {
	onMeshes(t, func(t *testing.T, d *contrib.DistributionStrategy, ctx context.Context) {
		square := d.Strategy().Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Square(in[0])}
		}, strategy.FunctionOptions{Name: "square"})
		out, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
			results, err := tc.Call(square, args[0])
			if err != nil {
				return nil, err
			}
			return results[0], nil
		}, ids(t, d, ctx))
		require.NoError(t, err)
		for i, got := range list(t, d, ctx, out) {
			require.Equal(t, float32((i+1)*(i+1)), got)
		}
		require.Equal(t, d.WorkerDevices(), d.ParameterDevices())
	})
}

func TestBroadcastMirrorsOneValue(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	v, err := d.GetVariable(ctx, "v", float32(3))
	require.NoError(t, err)
	m, err := d.Broadcast(ctx, []float32{1, 2}, contrib.To(v), eager.ToDevices(d.WorkerDevices()...))
	require.NoError(t, err)
	require.Equal(t, []any{[]float32{1, 2}, []float32{1, 2}}, list(t, d, ctx, m))
	same, err := d.Broadcast(ctx, m)
	require.NoError(t, err)
	require.Same(t, m, same)
	require.IsType(t, (*strategy.Mirrored)(nil), m.Value())
	components, err := d.Unwrap(ctx, ids(t, d, ctx))
	require.NoError(t, err)
	m, err = d.Broadcast(ctx, components[1], contrib.To(m))
	require.NoError(t, err)
	require.Equal(t, []any{float32(2), float32(2)}, list(t, d, ctx, m))
	for name, c := range map[string]struct {
		value any
		to    []eager.Destination
		kind  errkind.Kind
	}{
		"per device":     {ids(t, d, ctx), nil, errkind.AssertionError},
		"a variable":     {v, nil, errkind.AssertionError},
		"text":           {"text", nil, errkind.TypeError},
		"nothing":        {nil, nil, errkind.TypeError},
		"no destination": {float32(1), []eager.Destination{{}}, errkind.AssertionError},
		"no such objects": {float32(1), []eager.Destination{contrib.To(d.WorkerDeviceIndex().(*contrib.PerDevice))},
			errkind.AssertionError},
		"no value": {(*contrib.Mirrored)(nil), nil, errkind.RuntimeError},
	} {
		_, err := d.Broadcast(ctx, c.value, c.to...)
		require.Error(t, err, name)
		assert.Equal(t, c.kind, errkind.KindOf(err), "%s: %v", name, err)
	}
}

// If a tower's code fails in any way, the error is returned and the strategy remains usable.
func TestHostileTowersLeaveTheStrategyUsable(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	v, err := d.GetVariable(ctx, "v", float32(1))
	require.NoError(t, err)
	mine := errors.New("mine")
	var kept *contrib.TowerContext
	merge := func(fn contrib.MergeFunc, args ...any) contrib.TowerFunc {
		return func(tc *contrib.TowerContext, _ ...any) (any, error) { return tc.MergeCall(fn, args...) }
	}
	type closed struct{ Value *contrib.PerDevice }
	for name, c := range map[string]struct {
		fn    contrib.TowerFunc
		check func(t *testing.T, err error)
	}{
		"no function": {nil, func(t *testing.T, err error) { require.Equal(t, errkind.TypeError, errkind.KindOf(err)) }},
		"panics": {func(*contrib.TowerContext, ...any) (any, error) { panic(mine) }, func(t *testing.T, err error) {
			require.ErrorAs(t, err, new(*errkind.PanicError))
			require.ErrorIs(t, err, mine)
		}},
		"panics in a merge": {merge(func(context.Context, *contrib.DistributionStrategy, ...any) (any,
			error) {
			panic(mine)
		}),
			func(t *testing.T, err error) { require.ErrorIs(t, err, mine) }},
		"no merge function": {merge(nil), func(t *testing.T, err error) {
			require.ErrorAs(t, err,
				new(*errkind.PanicError))
		}},
		"fails in a merge": {merge(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) {
			return nil,
				mine
		}),
			func(t *testing.T, err error) { require.ErrorIs(t, err, mine) }},
		"merges in its merge": {func(tc *contrib.TowerContext, _ ...any) (any, error) {
			return tc.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) {
				return tc.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) { return nil, nil })
			})
		}, func(t *testing.T, err error) { require.Equal(t, errkind.RuntimeError, errkind.KindOf(err)) }},
		"scope in a tower": {func(tc *contrib.TowerContext, _ ...any) (any, error) {
			_, err := d.Scope(tc.Context())
			return nil, err
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, strategy.ErrContext) }},
		"structures differ": {func(tc *contrib.TowerContext, _ ...any) (any, error) { return make([]any, tc.TowerID()), nil },
			func(t *testing.T, err error) { require.Equal(t, errkind.AssertionError, errkind.KindOf(err)) }},
		"returns a foreign value": {func(*contrib.TowerContext, ...any) (any, error) {
			return []any{(*contrib.PerDevice)(nil)}, nil
		}, func(t *testing.T, err error) { require.Equal(t, errkind.TypeError, errkind.KindOf(err)) }},
		"keeps its context": {func(tc *contrib.TowerContext, _ ...any) (any, error) { kept = tc; return nil, nil },
			func(t *testing.T, err error) { require.NoError(t, err) }},
		"update panics": {merge(func(ctx context.Context, d *contrib.DistributionStrategy, _ ...any) (any, error) {
			return d.Update(ctx, v, func(*contrib.UpdateContext, ...any) (any, error) { panic(mine) })
		}), func(t *testing.T, err error) { require.ErrorIs(t, err, mine) }},
		"components diverge": {merge(func(ctx context.Context, d *contrib.DistributionStrategy, _ ...any) (any, error) {
			n := float32(0)
			return d.Update(ctx, v, func(u *contrib.UpdateContext, _ ...any) (any, error) { n++; return u.Assign(n) })
		}), func(t *testing.T, err error) { require.Equal(t, errkind.ValueError, errkind.KindOf(err)) }},
		"wrong shape": {merge(func(ctx context.Context, d *contrib.DistributionStrategy, _ ...any) (any, error) {
			return d.Update(ctx, v, func(u *contrib.UpdateContext, _ ...any) (any, error) { return u.Assign([]float32{1, 2}) })
		}), func(t *testing.T, err error) { require.Equal(t, errkind.ValueError, errkind.KindOf(err)) }},
		"a struct of values": {func(*contrib.TowerContext, ...any) (any, error) { return closed{}, nil },
			func(t *testing.T, err error) { require.NoError(t, err, "what is no nest is an object") }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.CallForEachTower(ctx, c.fn)
			c.check(t, err)
			m, err := d.Reduce(ctx, "sum", ids(t, d, ctx))
			require.NoError(t, err)
			require.Equal(t, []any{float32(3), float32(3)}, list(t, d, ctx, m))
			require.Equal(t, []any{float32(1), float32(1)}, list(t, d, ctx, v))
		})
	}
	_, err = kept.MergeCall(func(context.Context, *contrib.DistributionStrategy, ...any) (any, error) { return nil, nil })
	require.Error(t, err, "a context is of no use after its run")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = d.Broadcast(cancelled, []float32{1})
	if err != nil { // a copy may be done before the context is looked at
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, d.Strategy().Close())
	_, err = d.CallForEachTower(ctx, func(*contrib.TowerContext, ...any) (any, error) { return nil, nil })
	require.ErrorIs(t, err, strategy.ErrClosed)
}

// The error of a dataset that fails in the middle is returned, and an iterator that is initialized
// again starts over.
func TestADatasetsErrorIsTheIterators(t *testing.T) {
	d, ctx := open(t, 2, 1, strategy.Options{})
	mine := errors.New("mine")
	p, err := d.DistributeDataset(ctx, func() (input.Dataset, error) {
		return input.Range(6).Map(func(_ context.Context, e input.Element) (input.Element, error) {
			if e.Leaf().Flat().([]int64)[0] == 3 {
				return e, mine
			}
			return e, nil
		}, input.MapOptions{}), nil
	})
	require.NoError(t, err)
	it, err := p.MakeOneShotIterator(ctx)
	require.NoError(t, err)
	defer it.Close()
	for range 2 {
		x, err := it.GetNext(ctx)
		require.NoError(t, err)
		require.Equal(t, []any{int64(0), int64(1)}, list(t, d, ctx, x))
		_, err = it.GetNext(ctx)
		require.ErrorIs(t, err, mine)
		require.NotErrorIs(t, err, io.EOF)
		require.NoError(t, it.Initialize(ctx))
	}
}

// A nest that is passed to the towers and returned by them is unchanged.
func TestNestsPassThroughTowersUnchanged(t *testing.T) {
	type record struct{ A, B any }
	d, ctx := open(t, 2, 1, strategy.Options{})
	rng := rand.New(rand.NewPCG(3, 4))
	v, err := d.GetVariable(ctx, "v", float32(1))
	require.NoError(t, err)
	var nest func(depth int) any
	nest = func(depth int) any {
		if depth == 0 || rng.IntN(4) == 0 {
			switch rng.IntN(4) {
			case 0:
				return "text"
			case 1:
				return v
			case 2:
				m, err := d.Broadcast(ctx, float32(rng.IntN(10)))
				require.NoError(t, err)
				return m
			}
			return ids(t, d, ctx)
		}
		switch rng.IntN(3) {
		case 0:
			return record{nest(depth - 1), nest(depth - 1)}
		case 1:
			m := map[string]any{}
			for i := range rng.IntN(3) {
				m[fmt.Sprint(i)] = nest(depth - 1)
			}
			return m
		}
		s := make([]any, rng.IntN(3))
		for i := range s {
			s[i] = nest(depth - 1)
		}
		return s
	}
	for range 40 {
		in := nest(3)
		out, err := d.CallForEachTower(ctx, func(_ *contrib.TowerContext, args ...any) (any, error) { return args[0], nil },
			in)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%v", in), fmt.Sprintf("%v", out))
		require.Equal(t, in, out)
	}
}
