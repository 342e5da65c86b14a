package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestReplicasWriteVariablesInTheStep(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		for _, c := range []struct {
			opts strategy.VariableOptions
			want func(r int) float32 // of 10 after += id+1
		}{
			{strategy.VariableOptions{Aggregation: strategy.AggregateSum}, func(int) float32 { return 10 + float32(n*(n+1)/2) }},
			{strategy.VariableOptions{Aggregation: strategy.AggregateMean}, func(int) float32 { return 10 + float32(n+1)/2 }},
			{strategy.VariableOptions{Aggregation: strategy.AggregateFirst}, func(int) float32 { return 11 }},
			{strategy.VariableOptions{LocalWrites: true}, func(r int) float32 { return 11 + float32(r) }},
			{strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum}, func(r int) float32 { return 11 + float32(r) }},
		} {
			for _, initial := range []any{float32(10), []float32{10, 10, 10, 10}} {
				opts := c.opts
				if _, ok := initial.([]float32); ok && s.NumLogicalDevices() > 1 {
					opts.Annotation = logical.SplitInto(s.NumLogicalDevices())
				}
				v, err := s.NewVariable(ctx, initial, opts)
				require.NoError(t, err)
				f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					one := graph.ConvertDType(graph.AddScalar(rc.ReplicaIDInSyncGroup(), 1), dtypes.Float32)
					x := graph.BroadcastToDims(one, v.Shape().Dimensions...)
					return []*graph.Node{rc.AssignAdd(v, x)}
				}, strategy.FunctionOptions{})
				out, err := f.Run(ctx)
				require.NoError(t, err)
				for r, got := range strategytest.Values(t, v, n) {
					want := any(c.want(r))
					if _, ok := initial.([]float32); ok {
						want = []float32{c.want(r), c.want(r), c.want(r), c.want(r)}
					}
					require.Equal(t, want, got, "%s, replica %d", v, r)
					result, err := out[0].Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, want, result.Value())
				}
				require.NoError(t, v.Close())
				_, err = f.Run(ctx)
				require.ErrorIs(t, err, strategy.ErrClosed)
			}
		}
	})
}

func TestAReplicaWriteWithoutAggregationIsRefused(t *testing.T) {
	ctx := context.Background()
	s, err := strategy.New(plugintest.System(t, 2), strategy.Options{})
	require.NoError(t, err)
	defer s.Close()
	v, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.Assign(v, 3.0)}
	}, strategy.FunctionOptions{}).Run(ctx)
	require.Equal(t, strategy.ValueError, strategy.KindOf(err), "%v", err)
	require.ErrorContains(t, err, `"w"`)
}

func TestCheckpointRules(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, int64(7), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		require.NoError(t, v.RestoreValue(ctx, tensors.FromScalar(int64(7))))
		require.Equal(t, int64(7/n), strategytest.Values(t, v, n)[n-1])
		saved, err := v.SaveValue(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(7/n*n), saved.Value())
		none, err := s.NewVariable(ctx, int64(7), strategy.VariableOptions{Synchronization: strategy.OnRead})
		require.NoError(t, err)
		_, err = none.SaveValue(ctx)
		require.Equal(t, strategy.ValueError, strategy.KindOf(err))
	})
}
