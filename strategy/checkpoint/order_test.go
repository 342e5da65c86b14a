package checkpoint_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A cache of compiled programs contains the step of a resumed run.
func TestAStepIsTheSameProgramAfterARestore(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 2)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := graph.Tanh(layers.Dense(rc.Scope("z"), in[0], true, 4))
		x = layers.DropoutStatic(rc.Scope("dropout"), x, 0.5)
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("a"), x, true, 1)))
	}
	x := [][]float32{{1, 2}, {3, 4}}
	made := func() (*strategy.TPUStrategy, *model.Store, *train.Step) {
		s, store := strategytest.On(t, sys, strategy.Options{Replicas: 2}), model.NewStore()
		return s, store, strategytest.OK(train.New(s, store, optimizer.Adam().Done(), loss, train.Options{}))
	}
	s, store, step := made()
	_, err := step.Run(ctx, x)
	require.NoError(t, err)
	want, err := step.Lowered(ctx, x)
	require.NoError(t, err)
	d := openRun(t)
	require.NoError(t, d.Save(ctx, 1, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))

	for step := int64(2); step < 4; step++ { // the second restores the checkpoint of the first
		s, store, again := made()
		restoration(t, d, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
		got, err := again.Lowered(ctx, x)
		require.NoError(t, err)
		require.Equal(t, want.Text, got.Text)
		require.NoError(t, d.Save(ctx, step, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
	}
}
