package train_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// accumulating lists the meshes (replicas, logical devices) on which microbatches must equal the
// batch on one device.
var accumulating = [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}

// Regularization terms, their projections after a step, and the optimizer's clipping are applied
// once for each step.
func TestMicrobatchesWithRegularizersAreTheBatch(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, params := range map[string]map[string]any{
		"L1, which projects": {regularizer.ParamL1: 0.02},
		"both, with clipped steps": {regularizer.ParamL1: 0.01, regularizer.ParamL2: 0.02,
			optimizer.ParamClipStepByValue: 0.004},
	} {
		loss := func(p int) train.Loss {
			return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				for key, value := range params {
					rc.Scope().SetParam(key, value)
				}
				h := logical.Split(graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 16)), 1, p)
				return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("out"), h, true, 1), in[1])))
			}
		}
		fit := func(r, p int, state logical.StateSharding, n int) trained {
			s := strategytest.On(t, sys, strategy.Options{Replicas: r, LogicalDevices: p,
				Variables: append(logical.Rules{logical.Match(`hidden/.*weights`, logical.SplitInto(1, p))},
					strategytest.Share(state, 1)...)})
			return trainOn(t, s, optimizer.Adam().LearningRate(0.01).Done(), loss(p), train.Options{Accumulate: n}, rowsOf(3)...)
		}
		want := fit(1, 1, logical.ShardNothing, 0)
		zeros := 0
		for _, x := range strategytest.Numbers(t, want.values["/hidden/dense/weights"]) {
			if x == 0 {
				zeros++
			}
		}
		assert.Equal(t, params[regularizer.ParamL1] != nil, zeros > 0, "%s: %d zeros", name, zeros)
		for i, mesh := range accumulating {
			t.Run(fmt.Sprint(name, mesh), func(t *testing.T) {
				want.equals(t, fit(mesh[0], mesh[1], stages[i], 4), 2e-5)
			})
		}
	}
}

// All features together: microbatches of a deep model in half precision with rematerialization and
// sharded state.
func TestMicrobatchesWithEverythingAreTheBatch(t *testing.T) {
	sys := plugintest.System(t, 8)
	fit := func(o strategy.Options, keep remat.Policy, of train.Options) trained {
		loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			x := remat.Block(keep, in[0], func(x *graph.Node) *graph.Node { return layers.Dense(rc.Scope("block"), x, true, 8) })
			return deep(keep)(rc, []*graph.Node{x, in[1]})
		}
		sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.002).Done()
		batch := rowsOf(1)[0]
		return trainOn(t, strategytest.On(t, sys, o), sgd, loss, of, batch, batch, batch)
	}
	one := deepOptions(1, 1, logical.ShardNothing)
	want := fit(one, remat.Everything(), train.Options{Precision: precision.MixedBFloat16})
	require.Less(t, want.losses[2], want.losses[0])
	for i, mesh := range accumulating {
		keep := []remat.Policy{remat.Nothing(), remat.Products()}[i%2]
		state := []logical.StateSharding{logical.ShardParameters, logical.ShardParameters, logical.ShardGradients,
			logical.ShardParameters}[i]
		t.Run(fmt.Sprintf("%v %s %s", mesh, state, keep), func(t *testing.T) {
			got := fit(deepOptions(mesh[0], mesh[1], state), keep, train.Options{Accumulate: 4,
				Precision: precision.MixedBFloat16})
			want.equals(t, got, 1e-2)
		})
	}
}
