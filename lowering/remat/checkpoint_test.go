package remat_test

import (
	"fmt"
	"strings"
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

// GoMLX recomputes nodes between Node.Checkpoint and Node.StopCheckpoint with GoMLX's ops, which
// would lose annotations and collectives. The ops of this module must therefore be kept.
func TestGoMLXCheckpointKeepsModuleOps(t *testing.T) {
	sys := plugintest.System(t, 4)
	of := func(p int, checkpoints bool) train.Loss {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			x := in[0]
			for i := range 2 {
				if checkpoints {
					x = x.Checkpoint()
				}
				h := norm.LayerNorm(rc.Scope(fmt.Sprintf("norm_%d", i)), x, -1).Done()
				h = layers.Dense(rc.Scope(fmt.Sprintf("layer_%d", i)), h, true, 8)
				h = graph.Tanh(logical.Split(h, 1, p))
				h = graph.Sub(h, rc.AllReduce(strategy.Mean, graph.ReduceAndKeep(h, graph.ReduceMean, 0)))
				h = logical.OnDevice(p-1, graph.Mul(h, h), func(h *graph.Node) *graph.Node { return graph.Tanh(graph.Mul(h, h)) })
				h = remat.Block(remat.Nothing(), h, func(h *graph.Node) *graph.Node { return graph.Mul(h, graph.Sigmoid(h)) })
				x = loop.Layers(rc.Scope(fmt.Sprintf("loop_%d", i)), 2, graph.Add(x, h), func(scope *model.Scope,
					x *graph.Node) *graph.Node {
					return graph.Tanh(layers.Dense(scope.In("dense"), x, true, 8))
				}, loop.Options{})
				x = graph.Mul(x, graph.Sigmoid(x))
			}
			if checkpoints {
				x = x.StopCheckpoint()
			}
			return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), x, true, 1), in[1])))
		}
	}
	for _, mesh := range [][2]int{{1, 1}, {2, 2}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		want := losses(t, s, of(mesh[1], false))
		assert.InDeltaSlice(t, want, losses(t, s, of(mesh[1], true)), 1e-5)
		reduces := func(checkpoints bool) int {
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.StochasticGradientDescent().Done(),
				of(mesh[1], checkpoints), train.Options{}))
			x, y := strategytest.Batch(0)
			m, err := step.Lowered(t.Context(), x, y)
			require.NoError(t, err)
			return strings.Count(string(m.Text), "stablehlo.all_reduce")
		}
		assert.Equal(t, reduces(false), reduces(true), "a collective is not communicated again")
	}
}
