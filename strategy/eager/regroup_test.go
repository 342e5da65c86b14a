package eager_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A collective's result, and values that all replicas compute from it equally, count as mirrored.
// Updates and variables accept them.
func TestWhatIsTheSameOnAllReplicasCountsAsMirrored(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		total, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		mean, err := s.NewVariable(ctx, float32(7), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
		require.NoError(t, err)
		same, err := s.Mirror(ctx, float32(5), logical.Annotation{})
		require.NoError(t, err)
		sum := float32(n*(n+1)) / 2
		add := func(u *eager.UpdateContext, args ...any) (any, error) { return u.AssignAdd(args[0]) }
		for name, c := range map[string]struct {
			make func(rc *eager.ReplicaContext, arg any) (any, error)
			want float32
		}{
			"a sum": {func(rc *eager.ReplicaContext, _ any) (any, error) {
				return rc.AllReduce(strategy.Sum, float32(rc.ReplicaIDInSyncGroup()+1))
			}, sum},
			"a mean": {func(rc *eager.ReplicaContext, _ any) (any, error) {
				return rc.AllReduce(strategy.Mean, float32(rc.ReplicaIDInSyncGroup()+1))
			}, sum / float32(n)},
			"what is made of a sum": {func(rc *eager.ReplicaContext, _ any) (any, error) {
				x, err := rc.AllReduce(strategy.Sum, float32(rc.ReplicaIDInSyncGroup()+1))
				if err != nil {
					return nil, err
				}
				return rc.Mul(x, 0.5)
			}, sum / 2},
			"a read across replicas": {func(rc *eager.ReplicaContext, _ any) (any, error) { return rc.ReadAcross(total) }, 3},
			"a mirrored variable":    {func(rc *eager.ReplicaContext, _ any) (any, error) { return rc.Read(mean) }, 7},
			"a write's result": {func(rc *eager.ReplicaContext, _ any) (any, error) { return rc.Assign(mean, float32(7)) },
				7},
			"a mirrored argument": {func(rc *eager.ReplicaContext, arg any) (any, error) { return rc.Add(arg, 1) }, 6},
			"a number":            {func(rc *eager.ReplicaContext, _ any) (any, error) { return float32(2), nil }, 2},
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, total.Assign(ctx, float32(3)))
				v, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
				require.NoError(t, err)
				out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
					x, err := c.make(rc, args[0])
					require.NoError(t, err)
					_, err = rc.Update(v, add, x)
					require.NoError(t, err)
					_, err = rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
						return e.Update(ctx, v, add, args[0])
					}, x)
					require.NoError(t, err)
					return x, nil
				}, same)
				require.NoError(t, err)
				require.Equal(t, slices.Repeat([]any{10 + 2*c.want}, n), strategytest.Values(t, v, n))
				require.NoError(t, v.Assign(ctx, out), "it may be written from outside too")
				require.Equal(t, slices.Repeat([]any{c.want}, n), strategytest.Values(t, v, n))
				_, err = e.Update(ctx, v, add, out)
				require.NoError(t, err)
				require.Equal(t, slices.Repeat([]any{2 * c.want}, n), strategytest.Values(t, v, n))
			})
		}
		// Values that differ are still an error.
		if n > 1 {
			_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Update(mean, add, float32(rc.ReplicaIDInSyncGroup()))
			})
			require.Equal(t, errkind.TypeError, errkind.KindOf(err))
		}
	})
}

// With one replica there is nothing to merge: the objects of its code are returned unchanged.
func TestOneReplicasObjectsComeBackAsTheyWere(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: 2})
	m, err := s.Mirror(ctx, []float32{1, 2}, logical.Annotation{})
	require.NoError(t, err)
	p, err := s.PerReplica(ctx, []any{[]float32{1, 2}}, logical.Annotation{})
	require.NoError(t, err)
	mc, err := eager.Of(s).Component(m, 0)
	require.NoError(t, err)
	pc, err := eager.Of(s).Component(p, 0)
	require.NoError(t, err)
	for name, x := range map[string]any{
		"a mirrored value": m, "a per-replica value": p, "a component": pc, "a mirrored component": mc,
		"objects":   strategy.NewObjects("a"),
		"a pointer": &struct{ X int }{1}, "a text": "a", "a number": 2.5,
	} {
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			y, err := rc.MergeCall(func(_ context.Context, args ...any) (any, error) {
				return map[string]any{"x": args[0]},
					nil
			}, x)
			require.NoError(t, err)
			require.True(t, x == y.(map[string]any)["x"], name)
			return nil, nil
		})
		require.NoError(t, err)
		require.Nil(t, out)
	}
	for name, x := range map[string]any{"a mirrored value": m, "a per-replica value": p,
		"objects": strategy.NewObjects("a"), "a pointer": &struct{ X int }{1}} {
		out, err := eager.Of(s).CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) { return x, nil })
		require.NoError(t, err)
		require.True(t, x == out, name)
	}
}

func TestLocalResultsOfANestAreOneForEachReplica(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	nest := map[string]any{"a": 1.0}
	list, err := eager.Of(s).LocalResultsOf(nest)
	require.NoError(t, err)
	require.Equal(t, []any{nest, nest}, list)
	list, err = eager.Of(s).LocalResultsOf(5.0)
	require.NoError(t, err)
	require.Equal(t, []any{5.0}, list)
}

// A NaN key is an error, and errors list numeric keys in numerical order.
func TestMapsOfNestsHaveAnOrder(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	ctx := context.Background()
	_, err := eager.Of(s).Regroup(ctx, []any{map[int]any{10: "a", 2: "b", -1: "c"}, map[int]any{2: "b"}})
	require.Equal(t, errkind.AssertionError, errkind.KindOf(err))
	require.ErrorContains(t, err, "replica 1 has keys [2], replica 0 [-1 2 10]")
	nan := map[float64]any{math.NaN(): "a"}
	_, err = eager.Of(s).Regroup(ctx, []any{nan, nan})
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	require.ErrorContains(t, err, "has NaN as a key")
}

type pair struct{ A, B any }

// shifted adds r to some of the leaves, which are the same for each r.
func shifted(rng *rand.Rand, nest any, r int) any {
	return strategytest.OK(nesting.Map("shift", nest, func(_ string, x any) (any, error) {
		if rng.IntN(2) == 0 {
			return x, nil
		}
		return x.(int) + r, nil
	}))
}

// read replaces components by their values.
func read(t *testing.T, nest any) any {
	t.Helper()
	return strategytest.OK(nesting.Map("read", nest, func(_ string, x any) (any, error) {
		c, ok := x.(eager.Component)
		if !ok {
			return x, nil
		}
		v, err := c.Local(t.Context())
		require.NoError(t, err)
		return int(v.Value().(int64)), nil
	}))
}

func randomNest(rng *rand.Rand, depth int) any {
	if depth == 0 || rng.IntN(3) == 0 {
		return rng.IntN(3)
	}
	switch rng.IntN(3) {
	case 0:
		list := make([]any, rng.IntN(3))
		for i := range list {
			list[i] = randomNest(rng, depth-1)
		}
		return list
	case 1:
		m := map[string]any{}
		for _, k := range []string{"x", "y", "z"}[:rng.IntN(4)] {
			m[k] = randomNest(rng, depth-1)
		}
		return m
	}
	return pair{randomNest(rng, depth-1), randomNest(rng, depth-1)}
}

func TestSelectUndoesRegroup(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 3, 1)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		base := randomNest(rng, 4)
		seed := rng.Uint64()
		nests := make([]any, 3)
		for r := range nests {
			nests[r] = shifted(rand.New(rand.NewPCG(seed, 0)), base, r)
		}
		grouped, err := eager.Of(s).Regroup(ctx, nests)
		require.NoError(t, err)
		var selected []any
		for r := range nests {
			one, err := eager.Of(s).SelectReplica(r, grouped)
			require.NoError(t, err)
			selected = append(selected, one)
			require.Equal(t, nests[r], read(t, one))
		}
		// Regrouping the selected parts returns the same values.
		again, err := eager.Of(s).Regroup(ctx, selected)
		require.NoError(t, err)
		require.Equal(t, grouped, again)
	}
}
