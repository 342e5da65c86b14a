package loop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// normalised is a layer that normalizes over the batch of all replicas.
func normalised(rc *strategy.ReplicaContext, scope *model.Scope, x *graph.Node) *graph.Node {
	h := layers.Dense(scope.In("dense"), x, true, width)
	h = graph.Sub(h, rc.AllReduce(strategy.Mean, graph.ReduceAndKeep(h, graph.ReduceMean, 0)))
	h = norm.BatchNorm(scope.In("norm"), h, -1).Done()
	return graph.Add(x, graph.Tanh(h))
}

// Steps over uneven batches and loops of steps contain a loop with collectives and state.
func TestLoopsInStepsOfAllKinds(t *testing.T) {
	sys := plugintest.System(t, 4)
	ctx := context.Background()
	apart := lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		for i := range depth {
			x = normalised(rc, rc.Scope(fmt.Sprintf("layers_%d", i)), x)
		}
		return x
	})
	together := func(keep remat.Policy) train.Loss {
		return lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), depth, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				return normalised(rc, scope, x)
			}, loop.Options{Keep: keep})
		})
	}
	one := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	store := strategytest.SeededStore()
	x, y := batch(0)
	layerLoop(t, one, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{together(remat.Everything())(rc, in)}
	}, x, y)
	start := values(t, one, store, "/layers", "/output")
	s := strategytest.On(t, sys, strategy.Options{Replicas: 2})
	train := func(of train.Loss, apart bool) (losses []float64) {
		step := strategytest.OK(train.New(s, stored(t, start, apart),
			optimizer.StochasticGradientDescent().WithLearningRate(0.01).WithDecay(false).Done(), of, train.Options{}))
		x, y := strategytest.Sums(7, width) // 4 rows and 3
		for range 2 {
			l, err := step.Run(ctx, x, y)
			require.NoError(t, err)
			losses = append(losses, strategytest.Float64(t, l))
		}
		var batches [][]any
		for i := range 3 {
			x, y := batch(i)
			batches = append(batches, []any{x, y})
		}
		l, err := step.RunSteps(ctx, batches...)
		require.NoError(t, err)
		return append(losses, strategytest.Float64(t, l))
	}
	want := train(apart, true)
	for _, keep := range []remat.Policy{remat.Everything(), remat.Nothing()} {
		assert.InDeltaSlice(t, want, train(together(keep), false), 1e-4)
	}
}

// A block reads a variable of the strategy.
func TestVariablesOfTheStrategyInLoops(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	scale, err := s.NewVariable(ctx, float32(2), strategy.VariableOptions{Name: "scale", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	out, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
			return graph.Mul(x, rc.Read(scale))
		}, loop.Options{})}
	}, strategy.FunctionOptions{}).Run(ctx, []float32{1, 3})
	require.NoError(t, err)
	assert.Equal(t, []any{[]float32{8, 24}, []float32{8, 24}}, strategytest.Values(t, out[0], 2))
}

// A loop contains operations that run on one logical device.
func TestOneDeviceInLoops(t *testing.T) {
	s := strategytest.New(t, 1, 2)
	run := func(block func(x *graph.Node) *graph.Node) ([]*strategy.PerReplica, error) {
		return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			y := loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node { return block(x) },
				loop.Options{Keep: remat.Nothing()})
			return []*graph.Node{y, graph.Gradient(graph.ReduceAllSum(y), in[0])[0]}
		}, strategy.FunctionOptions{}).Run(context.Background(), []float32{1, 3})
	}
	out, err := run(func(x *graph.Node) *graph.Node { return logical.Assign(graph.Mul(x, x), 1) })
	require.NoError(t, err)
	assert.Equal(t, []any{[]float32{1, 6561}}, strategytest.Values(t, out[0], 1))
	out, err = run(func(x *graph.Node) *graph.Node {
		return logical.OnDevice(1, x, func(x *graph.Node) *graph.Node { return graph.Mul(x, x) })
	})
	require.NoError(t, err)
	assert.Equal(t, []any{[]float32{1, 6561}}, strategytest.Values(t, out[0], 1))
	assert.Equal(t, []any{[]float32{8, 8 * 2187}}, strategytest.Values(t, out[1], 1))
}
