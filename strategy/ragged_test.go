package strategy_test

import (
	"context"
	"io"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestRaggedArgumentsArePaddedOnRequest(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 3, 1)
	batch, err := s.PerReplica(ctx, []any{[]float32{1, 2, 3}, []float32{4}, []float32{}}, logical.Annotation{})
	require.NoError(t, err)
	step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := graph.AddScalar(in[0], 10) // the padding is 10 now
		sum := graph.ReduceAllSum(graph.Where(rc.RealElements(0), x, graph.ZerosLike(x)))
		count := graph.ConvertDType(rc.RealSize(0, -1), dtypes.Float32)
		whole := graph.ConvertDType(rc.RealSize(1, 0), dtypes.Float32)
		return []*graph.Node{sum, count, whole}
	}
	_, err = s.Function(step, strategy.FunctionOptions{}).Run(ctx, batch, []float32{7, 7})
	var bad *strategy.ArgumentError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, "PadRagged")
	out, err := s.Function(step, strategy.FunctionOptions{PadRagged: true}).Run(ctx, batch, []float32{7, 7})
	require.NoError(t, err)
	require.Equal(t, []any{float32(36), float32(14), float32(0)}, strategytest.Values(t, out[0], 3))
	require.Equal(t, []any{float32(3), float32(1), float32(0)}, strategytest.Values(t, out[1], 3))
	require.Equal(t, []any{float32(2), float32(2), float32(2)}, strategytest.Values(t, out[2], 3))
}

func TestADistributedDatasetTrainsToItsMean(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		// 10 numbers in global batches of 4: the last one is short, some replicas
		// have none of it.
		d, err := feed.Distribute(s, input.Range(10).Batch(4, false), feed.DistributeOptions{})
		require.NoError(t, err)
		total, err := s.NewVariable(ctx, int64(0), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		add := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			real := graph.Where(rc.RealElements(0), in[0], graph.ZerosLike(in[0]))
			rc.AssignAdd(total, graph.ReduceAllSum(real))
			return nil
		}, strategy.FunctionOptions{PadRagged: true})
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
