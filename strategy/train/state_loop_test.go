package train_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
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
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// deep is a model with a loop over 3 layers. Some dimensions of its stacks are divisible and others
// are not.
func deep(keep remat.Policy) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		p := rc.Strategy().NumLogicalDevices()
		x := loop.Layers(rc.Scope("layers"), 3, in[0], func(scope *model.Scope, x *graph.Node) *graph.Node {
			h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
			h = layers.Dense(scope.In("up"), h, true, 12)
			h = graph.Tanh(logical.Split(h, 1, p))
			h = graph.Tanh(layers.Dense(scope.In("odd"), h, true, 11))
			return graph.Add(x, layers.Dense(scope.In("down"), h, false, 8))
		}, loop.Options{Keep: keep})
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("out"), x, true, 1), in[1])))
	}
}

func deepOptions(r, p int, state logical.StateSharding) strategy.Options {
	return strategy.Options{Replicas: r, LogicalDevices: p,
		Variables: append(logical.Rules{logical.Match(`up/.*weights`, logical.SplitInto(1, 1, p))}, strategytest.Share(state,
			1)...)}
}

func TestLayersOfALoopAreGatheredOneByOne(t *testing.T) {
	sys := plugintest.System(t, 8)
	run := func(opts strategy.Options, keep remat.Policy) ([]float64, map[string]*tensors.Tensor, string) {
		s := strategytest.On(t, sys, opts)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.02).Done(), deep(keep), train.Options{}))
		losses := strategytest.Losses(t, step, 0, 6)
		x, y := strategytest.Sums(5, 8) // uneven on most meshes
		_, err := step.Run(t.Context(), x, y)
		require.NoError(t, err)
		x, y = strategytest.Batch(0)
		m, err := step.Lowered(t.Context(), x, y)
		require.NoError(t, err)
		return losses, values(t, s, store), string(m.Text)
	}
	wantLosses, want, _ := run(strategy.Options{Replicas: 1, LogicalDevices: 1}, remat.Everything())
	stack := regexp.MustCompile(`"stablehlo.all_gather"[^\n]*-> tensor<3x\d+x\d+xb?f(16|32)>`)
	layer := regexp.MustCompile(`"stablehlo.all_gather"[^\n]*-> tensor<\d+x\d+xf32>`)
	scattered := regexp.MustCompile(`(?s)"stablehlo.reduce_scatter".{0,400}?-> tensor<\d+x\d+xf32>`)
	summed := regexp.MustCompile(`(?s)"stablehlo.(all_reduce|reduce_scatter)".{0,400}?-> tensor<3x\d+x\d+xf32>`)
	for _, c := range []struct {
		r, p  int
		state logical.StateSharding
		keep  remat.Policy
	}{
		{8, 1, logical.ShardParameters, remat.Nothing()},
		{4, 2, logical.ShardParameters, remat.Everything()},
		{2, 4, logical.ShardGradients, remat.Nothing()},
		{4, 2, logical.ShardOptimizer, remat.Everything()},
	} {
		t.Run(fmt.Sprintf("%dx%d %s %s", c.r, c.p, c.state, c.keep), func(t *testing.T) {
			losses, got, text := run(deepOptions(c.r, c.p, c.state), c.keep)
			assert.InDeltaSlice(t, wantLosses, losses, 1e-5)
			requireAlike(t, want, got, 1e-4)
			if c.state == logical.ShardParameters {
				assert.Empty(t, stack.FindAllString(text, -1))
				assert.NotEmpty(t, layer.FindAllString(text, -1))
				half := strategytest.OK(train.New(strategytest.On(t, sys, deepOptions(c.r, c.p, c.state)),
					strategytest.SeededStore(),
					optimizer.Adam().Done(), deep(c.keep), train.Options{Precision: precision.MixedBFloat16}))
				x, y := strategytest.Batch(0)
				m, err := half.Lowered(t.Context(), x, y)
				require.NoError(t, err)
				assert.Empty(t, stack.FindAllString(string(m.Text), -1), "nor in the precision of the step")
			}
			assert.NotEmpty(t, scattered.FindAllString(text, -1), "each layer scatters the gradients of its slices")
			assert.Empty(t, summed.FindAllString(text, -1), "no gradient of a stack is whole")
		})
	}
}
