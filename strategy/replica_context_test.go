package strategy_test

import (
	"context"
	"io"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestADistributedDatasetTrainsToItsMean(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		// 10 numbers in global batches of 4: the last batch is short, and empty on some replicas.
		d, err := feed.Distribute(s, input.Range(10).Batch(4, false), feed.DistributeOptions{})
		require.NoError(t, err)
		total, err := s.NewVariable(ctx, int64(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		add := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			real := graph.Where(rc.RealElements(0), in[0], graph.ZerosLike(in[0]))
			rc.AssignAdd(total, graph.ReduceAllSum(real))
			return nil
		}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
		it, err := feed.Iterate(ctx, s, d)
		require.NoError(t, err)
		defer it.Close()
		var means []float64
		for {
			batch, err := it.Next(ctx)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			_, err = add.Run(ctx, batch)
			require.NoError(t, err)
			mean, err := s.Reduce(ctx, strategy.Mean, batch.(strategy.Value), 0)
			require.NoError(t, err)
			x, err := mean.Float64(ctx)
			require.NoError(t, err)
			means = append(means, x)
		}
		require.Equal(t, []float64{1.5, 5.5, 8.5}, means)
		sum, err := total.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(45), sum.Value())
		f, err := feed.DistributeFromFunction(s, func(c input.Context) (input.Dataset, error) {
			return input.Range(8).Batch(2, false), nil
		}, feed.DistributeOptions{})
		require.NoError(t, err)
		require.Equal(t, s.NumReplicasInSync(), f.LocalReplicas())
	})
}
