//go:build cgo

package manual_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/manual/pipeline"
	"github.com/tpustrategy/tpustrategy/lowering/manual/ring"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// parted is a model that uses manual products, experts, ring attention and a pipeline.
func parted(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	x := graph.Tanh(layers.Dense(rc.Scope("in"), in[0], true, 4*2*width))
	x = graph.Reshape(x, x.Shape().Dimensions[0], 4, 2, width) // [rows, sequence, heads, width]
	x = graph.Add(x, ring.Attention("expert", x, x, x, ring.Options{Causal: true}))
	h := graph.ReduceMean(x, 1, 2)
	h = sparse(rc.Scope("moe"), parallel(rc.Scope("dense"), h))
	h = pipeline.Run("model", h, []*graph.Node{weights(rc.Scope("stages"), "w", h, 2, width, width)},
		func(x *graph.Node, w []*graph.Node) *graph.Node {
			for i := range w[0].Shape().Dimensions[0] {
				x = graph.Tanh(graph.Dot(x, graph.Squeeze(graph.SliceAxis(w[0], 0, graph.AxisElem(i)), 0)).Product())
			}
			return x
		}, pipeline.Options{Microbatches: 2})
	return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("out"), h, true, 1), in[1])))
}

// A step with microbatches runs the regions for each microbatch.
func TestRegionsInMicrobatchesMatchBatch(t *testing.T) {
	const steps = 2
	losses := func(t *testing.T, mesh [3]int, n int, state logical.StateSharding, loss train.Loss) []float64 {
		opts := mixedOptions(mesh[1], mesh[2])
		for i := range opts.Variables {
			opts.Variables[i].Optional = true // one of the models has them
		}
		opts.Replicas, opts.Variables = mesh[0], append(opts.Variables, strategytest.Share(state, 1)...)
		s := strategytest.On(t, plugintest.System(t, 8), opts)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.001).Done(), loss,
			train.Options{Accumulate: n}))
		var all []float64
		for range steps {
			all = append(all, strategytest.Losses(t, step, 0, 1)...)
		}
		return all
	}
	for name, loss := range map[string]train.Loss{"in loops and blocks": mixed, "of each kind": parted} {
		want := losses(t, [3]int{1, 1, 1}, 0, logical.ShardNothing, loss)
		require.Less(t, want[steps-1], want[0])
		for i, mesh := range [][3]int{{1, 1, 1}, {8, 1, 1}, {4, 2, 1}, {2, 2, 2}} { // replicas, model, expert
			if name == "in loops and blocks" && (i == 0 || i == 3) { // few, as they take long
				continue
			}
			t.Run(fmt.Sprint(name, mesh), func(t *testing.T) {
				state := logical.ShardParameters
				if i == 0 {
					state = logical.ShardNothing
				}
				assert.InDeltaSlice(t, want, losses(t, mesh, 2, state, loss), 1e-4)
			})
		}
	}
}
