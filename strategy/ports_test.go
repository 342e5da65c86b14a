package strategy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// The optimizer of the pages with momentum, over a split variable: merge call,
// batch_reduce_to, update with a slot that is colocated.
func TestMomentumOfASplitVariableInAMergeCall(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		v, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{Annotation: logical.SplitInto(s.NumLogicalDevices())})
		require.NoError(t, err)
		scope, err := s.Scope(ctx)
		require.NoError(t, err)
		slots, err := e.ColocateVarsWith(scope, v)
		require.NoError(t, err)
		slot, err := s.NewVariable(slots, []float32{0, 0, 0, 0}, strategy.VariableOptions{})
		require.NoError(t, err)
		require.Equal(t, v.Annotation(), slot.Annotation())
		ones := []float32{1, 1, 1, 1}
		apply := func(u *eager.UpdateContext, args ...any) (any, error) {
			old, err := u.Ops().Read(slot)
			if err != nil {
				return nil, err
			}
			decayed, err := u.Ops().Mul(old, float32(0.5))
			if err != nil {
				return nil, err
			}
			next, err := u.Ops().Add(decayed, args[0])
			if err != nil {
				return nil, err
			}
			if _, err = u.Ops().Assign(slot, next); err != nil {
				return nil, err
			}
			return u.AssignSub(next)
		}
		update := func(ctx context.Context, gradient any) (any, error) {
			reduced, err := e.BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: gradient, To: eager.To(v)}})
			if err != nil {
				return nil, err
			}
			return e.Update(ctx, v, apply, reduced[0])
		}
		// Once in eager code, once in a compiled step.
		_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			gradient, err := rc.Mul(ones, float32(rc.ReplicaIDInSyncGroup()+1))
			require.NoError(t, err)
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) { return update(ctx, args[0]) }, gradient)
		})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			gradient := graph.Mul(graph.Const(rc.Graph(), ones), graph.AddScalar(id, 1))
			rc.MergeCall(func(mc *strategy.MergeContext, args ...*strategy.Merged) []*strategy.Merged {
				if _, err := update(mc.Context(), args[0]); err != nil {
					panic(err)
				}
				return nil
			}, gradient)
			return nil
		}, strategy.FunctionOptions{})
		_, err = f.Run(ctx)
		require.NoError(t, err)
		total := 2.5 * float32(n*(n+1)) / 2 // the gradient, and 1.5 of it
		want := []float32{1 - total, 2 - total, 3 - total, 4 - total}
		require.Equal(t, slices.Repeat([]any{want}, n), strategytest.Values(t, v, n))
	})
}

// The last batch of an epoch, one replica of which has nothing.
func TestRaggedLastBatchesReduceAndGather(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2), graph.ReduceAllSum(in[0])}
	}, strategy.FunctionOptions{PadRagged: true})
	for _, c := range []struct {
		parts      []any
		mean, sums float32
		all        []float32
	}{
		{[]any{[]float32{5, 6}, []float32{7}}, 12, 9, []float32{10, 12, 14}},
		{[]any{[]float32{5, 6}, []float32{}}, 11, 5.5, []float32{10, 12}},
	} {
		batch, err := s.PerReplica(ctx, c.parts, logical.Annotation{})
		require.NoError(t, err)
		out, err := f.Run(ctx, batch)
		require.NoError(t, err)
		mean, err := s.Reduce(ctx, strategy.Mean, out[0], 0)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]any{c.mean}, 2), strategytest.Values(t, mean, 2))
		mean, err = s.Reduce(ctx, strategy.Mean, out[1])
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]any{c.sums}, 2), strategytest.Values(t, mean, 2))
		all, err := s.Gather(ctx, out[0], 0)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]any{c.all}, 2), strategytest.Values(t, all, 2))
	}
}
