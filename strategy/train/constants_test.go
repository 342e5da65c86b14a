package train_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
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

// A step that closes over a large table trains as a step that receives the table's rows as arguments:
// with microbatches, several steps in a launch, sharded state, layers in a loop and rematerialization.
func TestStepsWithLargeConstantsTrainAsWithArguments(t *testing.T) {
	const rows, width, batch = 1 << 16, 8, 16
	data := make([]float32, rows*width) // 2 MiB
	for i := range data {
		data[i] = float32(i*37%101)/50 - 1
	}
	table := tensors.FromFlatDataAndDimensions(data, rows, width)
	batchOf := func(step int) (ids []int32, values [][]float32) {
		for i := range batch {
			id := (step*7919 + i*4099) % rows
			ids, values = append(ids, int32(id)), append(values, data[id*width:(id+1)*width])
		}
		return ids, values
	}
	lookUp := func(g *graph.Graph, ids *graph.Node) *graph.Node {
		return graph.Gather(graph.ConstTensor(g, table), graph.InsertAxes(ids, -1))
	}
	loss := func(p int, closesOver bool) train.Loss {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			read := func() *graph.Node {
				if closesOver {
					return lookUp(in[0].Graph(), in[0])
				}
				return in[1]
			}
			x := logical.Split(layers.Dense(rc.Scope("in"), read(), true, width), 1, p)
			ids, values := in[0], in[1]
			x = loop.Layers(rc.Scope("layers"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				row := values
				if closesOver {
					row = lookUp(x.Graph(), ids)
				}
				return graph.Tanh(graph.Add(layers.Dense(scope.In("up"), x, true, width), row))
			}, loop.Options{Keep: remat.Products()})
			return graph.ReduceAllMean(graph.Square(graph.Sub(x, read())))
		}
	}
	sys := plugintest.System(t, 4)
	for name, c := range map[string]struct {
		replicas, devices int
		state             logical.StateSharding
		opts              train.Options
		steps             int // in a launch
	}{
		"1x1":                        {replicas: 1, devices: 1},
		"2x1 with microbatches":      {replicas: 2, devices: 1, opts: train.Options{Accumulate: 2}},
		"1x2 with steps in a launch": {replicas: 1, devices: 2, steps: 3},
		"2x2 with sharded state":     {replicas: 2, devices: 2, state: logical.ShardParameters},
		"4x1 with sharded state, loop": {replicas: 4, devices: 1, state: logical.ShardOptimizer,
			opts: train.Options{Accumulate: 2}, steps: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var losses [2]string
			for i, closesOver := range []bool{true, false} {
				opts := strategy.Options{Replicas: c.replicas, LogicalDevices: c.devices}
				if c.state != 0 {
					opts.Variables = strategytest.Share(c.state, 1)
				}
				s := strategytest.On(t, sys, opts)
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
					loss(c.devices, closesOver), c.opts))
				for n := range 3 {
					ids, values := batchOf(n)
					var err error
					var result *strategy.Mirrored
					if c.steps > 0 {
						result, err = step.RunSteps(t.Context(), [][]any{{ids, values}, {ids, values}, {ids, values}}...)
					} else {
						result, err = step.Run(t.Context(), ids, values)
					}
					require.NoError(t, err)
					value, err := result.Float64(t.Context())
					require.NoError(t, err)
					losses[i] += fmt.Sprintf("%.5f ", value)
				}
				if closesOver {
					ids, values := batchOf(0)
					m, err := step.Lowered(t.Context(), ids, values)
					require.NoError(t, err)
					assert.Less(t, len(m.Text), 200_000)
				}
			}
			assert.Equal(t, losses[1], losses[0])
		})
	}
}
