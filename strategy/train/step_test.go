package train_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestRegularizersArePartOfTheLoss(t *testing.T) {
	sys := plugintest.System(t, 4)
	ctx := context.Background()
	x := [][]float32{{1, 2}, {-3, 1}, {0.5, -1}, {2, 2}}
	y := [][]float32{{1}, {0}, {-1}, {2}}
	square := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		y := layers.Dense(rc.Scope("out"), in[0], true, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
	fit := func(t *testing.T, r, p int, params map[string]any, loss train.Loss) (losses []float64, weights []float32) {
		strat := strategytest.On(t, sys, strategy.Options{Replicas: r, LogicalDevices: p})
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(1))
		for name, value := range params {
			store.SetParam(name, value)
		}
		step := strategytest.OK(train.New(strat, store,
			optimizer.StochasticGradientDescent().WithLearningRate(0.05).WithDecay(false).Done(), loss, train.Options{}))
		for range 3 {
			l, err := step.Run(ctx, x, y)
			require.NoError(t, err)
			value, err := l.Float64(ctx)
			require.NoError(t, err)
			losses = append(losses, value)
		}
		v, ok := strat.Variables(store).Lookup("/out/dense/weights")
		require.True(t, ok)
		value, err := v.Value(ctx)
		require.NoError(t, err)
		return losses, tensors.MustCopyFlatData[float32](value)
	}
	byHand := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		l := square(rc, in)
		w := rc.Scope("out", "dense").GetVariable("weights").NodeValue(rc.Graph())
		return graph.Add(l, graph.MulScalar(graph.ReduceAllSum(graph.Square(w)), 0.5))
	}
	itself := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		gomlxtrain.AddMainLoss(square(rc, in))
		return gomlxtrain.TotalLoss(rc.Graph())
	}
	l2 := map[string]any{regularizer.ParamL2: 0.5}
	wantLosses, wantWeights := fit(t, 1, 1, nil, byHand)
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			for name, loss := range map[string]train.Loss{"left to the step": square, "added by the loss function": itself} {
				losses, weights := fit(t, mesh[0], mesh[1], l2, loss)
				assert.InDeltaSlice(t, wantLosses, losses, 1e-5, name)
				assert.InDeltaSlice(t, wantWeights, weights, 1e-5, name)
			}
			_, weights := fit(t, mesh[0], mesh[1], map[string]any{regularizer.ParamL1: 5.0}, square)
			assert.Equal(t, []float32{0, 0}, weights, "L1 sets weights below its amount to zero after each step")
		})
	}
}

func TestTheCallersBatchStaysAsItIs(t *testing.T) {
	strat := strategytest.New(t, 2, 1)
	ctx := context.Background()
	step := strategytest.OK(train.New(strat, model.NewStore(),
		optimizer.StochasticGradientDescent().WithLearningRate(0).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			y := layers.Dense(rc.Scope("out"), in[0], true, 1)
			return graph.ReduceAllMean(graph.Add(in[0], graph.MulScalar(y, 0)))
		}, train.Options{}))
	x := [][]float32{{0}, {0}}
	batch := []any{x}
	for i := range 3 {
		x[0][0], x[1][0] = float32(i), float32(2*i)
		l, err := step.Run(ctx, batch...)
		require.NoError(t, err)
		value, err := l.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1.5*float64(i), value, "what the slices hold now is what the step is given")
	}
	assert.Equal(t, []any{x}, batch)
}

func TestATrainingStepWithoutABatchSaysWhichArgument(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 1), strategy.Options{Replicas: 1})
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllSum(in[0])
		}, train.Options{}))
	_, err := step.Run(ctx, (*strategy.PerReplica)(nil))
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, "no value")
}
