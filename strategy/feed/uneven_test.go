package feed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestUnevenBatchesAreFedAsTheyAre(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	ds, err := eager.Of(s).MakeNumpyDataset([]float32{1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	f, err := feed.FromDataset(ctx, s, ds.Batch(4, false), feed.Options{Partial: feed.Uneven})
	require.NoError(t, err)
	defer f.Close()
	step := train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
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

// Several processes have one shape: an uneven batch is refused by name on each of them.
func TestSeveralProcessesRefuseUnevenBatches(t *testing.T) {
	errs := strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2}, strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		d, err := feed.Distribute(s, input.Range(16).Batch(8, true), feed.DistributeOptions{})
		if err != nil {
			return err
		}
		_, err = feed.New(ctx, s, d, feed.Options{Partial: feed.Uneven})
		var option *feed.OptionError
		if !errors.As(err, &option) || option.Option != "Partial" {
			return fmt.Errorf("feed: %w", err)
		}
		step := train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(), func(_ *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(in[0])
		})
		_, err = step.Run(ctx, []float32{1, 2, 3})
		var argument *strategy.ArgumentError
		if !errors.As(err, &argument) || !strings.Contains(err.Error(), "3 rows does not divide among 4 replicas") {
			return fmt.Errorf("train step: %w", err)
		}
		return nil
	})
	strategytest.NoErrors(t, errs)
}
