package eager_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestMergeCallInAStep(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{})
		require.NoError(t, err)
		metric, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			rc.AssignAdd(metric, id)
			out := eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				require.True(t, eager.InCrossReplicaContext(mc.Context()))
				mean := mc.Reduce(strategy.Mean, args[0])
				mc.AssignSub(v, mean)
				// All replicas' tensors are accessible: the result is the last one's minus the
				// first one's.
				all := mc.LocalResults(args[0])
				require.Len(t, all, n)
				spread := mc.Map(func(in []*graph.Node) *graph.Node { return graph.Sub(in[1], in[0]) }, all[0], all[n-1])
				return []*eager.MergeValue{spread, args[0], mc.Read(metric)}
			}, id)
			return append(out, rc.ReadReduced(metric), rc.Broadcast(graph.AddScalar(id, 5)))
		}, strategy.FunctionOptions{})
		out, err := f.Run(ctx)
		require.NoError(t, err)
		sum := float32(n * (n - 1) / 2)
		for r := range n {
			for i, want := range []float32{float32(n - 1), float32(r), sum, sum, 5} {
				got, err := out[i].Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, want, got.Value(), "result %d of replica %d", i, r)
			}
			got, err := v.Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, 10-sum/float32(n), got.Value())
			got, err = metric.Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, float32(r), got.Value(), "a metric is the replica's own")
		}
		total, err := metric.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, sum, total.Value())
	})
}

func TestAMergeCallMayBeTheStepsFirstCall(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return eager.MergeCall(rc, func(mc *eager.MergeContext, _ ...*eager.MergeValue) []*eager.MergeValue {
			return []*eager.MergeValue{mc.Map(func([]*graph.Node) *graph.Node { return graph.Const(rc.Graph(), float32(3)) })}
		})
	}, strategy.FunctionOptions{})
	out, err := f.Run(context.Background())
	require.NoError(t, err)
	got, err := out[0].Local(context.Background(), 1)
	require.NoError(t, err)
	require.Equal(t, float32(3), got.Value())
}

// The momentum optimizer of the documentation, with a sharded variable, uses a merge call,
// BatchReduceTo, and Update with a colocated slot.
func TestMomentumOfASplitVariableInAMergeCall(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		v, err := s.NewVariable(ctx, []float32{1, 2, 3, 4},
			strategy.VariableOptions{Annotation: logical.SplitInto(s.NumLogicalDevices())})
		require.NoError(t, err)
		scope, err := eager.Of(s).Scope(ctx)
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
		// The test runs it in eager code and in a compiled step.
		_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			gradient, err := rc.Mul(ones, float32(rc.ReplicaIDInSyncGroup()+1))
			require.NoError(t, err)
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) { return update(ctx, args[0]) }, gradient)
		})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			gradient := graph.Mul(graph.Const(rc.Graph(), ones), graph.AddScalar(id, 1))
			eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				if _, err := update(mc.Context(), args[0]); err != nil {
					panic(err)
				}
				return nil
			}, gradient)
			return nil
		}, strategy.FunctionOptions{})
		_, err = f.Run(ctx)
		require.NoError(t, err)
		total := 2.5 * float32(n*(n+1)) / 2 // the gradient, and 1.5 times the gradient
		want := []float32{1 - total, 2 - total, 3 - total, 4 - total}
		require.Equal(t, slices.Repeat([]any{want}, n), strategytest.Values(t, v, n))
	})
}

func TestAMergedValueThatUsesAReplicasNodeIsNotMirrored(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, [][2]int{{2, 1}, {2, 2}, {3, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		v, err := s.NewVariable(ctx, float32(5), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		var kept *eager.MergeContext
		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			return eager.MergeCall(rc, func(mc *eager.MergeContext, _ ...*eager.MergeValue) []*eager.MergeValue {
				kept = mc
				x := mc.Map(func([]*graph.Node) *graph.Node { return id })
				mc.Assign(v, x)
				return []*eager.MergeValue{x}
			})
		}, strategy.FunctionOptions{}).Run(ctx)
		assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)

		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return eager.MergeCall(rc, func(mc *eager.MergeContext, _ ...*eager.MergeValue) []*eager.MergeValue {
				x := mc.Map(func(in []*graph.Node) *graph.Node { return graph.MulScalar(in[0], 2) }, mc.Read(v))
				mc.Assign(v, x)
				return []*eager.MergeValue{x}
			})
		}, strategy.FunctionOptions{}).Run(ctx)
		require.NoError(t, err)
		got, err := v.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, float32(10), got.Value())

		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			kept.Read(v)
			return []*graph.Node{graph.Const(rc.Graph(), float32(1))}
		}, strategy.FunctionOptions{}).Run(ctx)
		assert.ErrorIs(t, err, strategy.ErrContext)
	})
}

func TestSumsAndMeansOfWhatIsNoNumberAreRefusedInSteps(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 2)
	s := strategytest.On(t, sys, strategy.Options{Replicas: 2})
	asOnTPU := strategytest.On(t, sys, strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowTPU})
	_, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Const(rc.Graph(), true))}
	}, strategy.FunctionOptions{}).Run(ctx)
	assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
	_, err = asOnTPU.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return eager.MergeCall(rc, func(mc *eager.MergeContext, x ...*eager.MergeValue) []*eager.MergeValue {
			return []*eager.MergeValue{mc.Reduce(strategy.Mean, x[0], 0)}
		}, graph.Const(rc.Graph(), []int32{1, 4}))
	}, strategy.FunctionOptions{}).Run(ctx)
	assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
	v, err := s.NewVariable(ctx, true, strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	assert.Equal(t, errkind.TypeError, errkind.KindOf(v.Assign(ctx, false)))
	_, err = v.Read(ctx)
	assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	// With one replica there is nothing to reduce.
	one := strategytest.On(t, plugintest.System(t, 1), strategy.Options{Replicas: 1})
	v, err = one.NewVariable(ctx, true, strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	got, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, true, got.Value())
}
