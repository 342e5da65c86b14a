package strategy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The last batch of an epoch, which is empty on one replica.
func TestRaggedLastBatchesReduceAndGather(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2), graph.ReduceAllSum(in[0])}
	}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
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
