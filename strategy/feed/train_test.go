package feed_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// digits returns a dataset of n random 28x28 images with their classes, and the same data as
// slices.
func digits(n int) (ds input.Dataset, x []float32, y []int32) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, y = make([]float32, n*784), make([]int32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i] = int32(rng.IntN(10))
	}
	images, err := input.NewTensor(x, n, 784)
	if err != nil {
		panic(err)
	}
	classes, err := input.NewTensor(y, n, 1)
	if err != nil {
		panic(err)
	}
	return input.FromSlices(input.Tuple(input.Leaf(images), input.Leaf(classes))), x, y
}

// mlp is a training step of a 784-hidden-hidden-10 network with plain SGD.
func mlp(s *strategy.TPUStrategy, hidden int) *train.Step {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
	return strategytest.OK(train.New(s, store, sgd, func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := in[0]
		for _, layer := range []string{"first", "second"} {
			h = layers.Dense(rc.Scope(layer), h, true, hidden)
			h = graph.Max(h, graph.ZerosLike(h))
		}
		logits := layers.Dense(rc.Scope("output"), h, true, 10)
		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
	}, train.Options{}))
}

func TestFedTrainingIsTheSameAsOnHostBatches(t *testing.T) {
	ctx := context.Background()
	ds, x, y := digits(64)
	losses := func(run func(step *train.Step) []float64) []float64 {
		return run(mlp(strategytest.New(t, 4, 1), 32))
	}
	want := losses(func(step *train.Step) (all []float64) {
		for i := range 8 {
			xs := tensors.FromFlatDataAndDimensions(x[i*8*784:(i+1)*8*784], 8, 784)
			l, err := step.Run(ctx, xs, tensors.FromFlatDataAndDimensions(y[i*8:(i+1)*8], 8, 1))
			require.NoError(t, err)
			value, err := l.Float64(ctx)
			require.NoError(t, err)
			all = append(all, value)
		}
		return all
	})
	s := strategytest.New(t, 4, 1)
	f := open(t, s, ds.Batch(8, true), feed.Options{})
	step := mlp(s, 32)
	var got []float64
	for batch, err := range f.All(ctx) {
		require.NoError(t, err)
		l, err := step.Run(ctx, batch.Args()...)
		require.NoError(t, err)
		value, err := l.Float64(ctx)
		require.NoError(t, err)
		got = append(got, value)
	}
	require.Equal(t, want, got)
}
