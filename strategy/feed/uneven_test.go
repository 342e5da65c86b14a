package feed_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tpustrategy/strategy"
	"tpustrategy/strategy/feed"
)

func TestUnevenBatchesAreFedAsTheyAre(t *testing.T) {
	ctx := context.Background()
	s := newStrategy(t, 2, 1)
	ds, err := s.Extended().MakeNumpyDataset([]float32{1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	f, err := feed.FromDataset(ctx, s, ds.Batch(4, false), feed.Options{Partial: feed.Uneven})
	require.NoError(t, err)
	defer f.Close()
	step := s.TrainStep(model.NewStore(), optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		w := rc.Scope().VariableWithValue("w", float32(0)).NodeValue(rc.Graph())
		mean := graph.ReduceAllMean(in[0])
		return graph.Add(mean, graph.Mul(w, graph.ZerosLike(mean)))
	})
	var losses []float64
	var rows [][]int
	for batch, err := range f.All(ctx) {
		require.NoError(t, err)
		loss, err := step.Run(ctx, batch.Args()...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		losses, rows = append(losses, value), append(rows, batch.Rows)
	}
	assert.Equal(t, []float64{2.5, 6}, losses)
	assert.Equal(t, [][]int{{2, 2}, {2, 1}}, rows)
}
