package loop_test

import (
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The variables have initializers that depend on the shape, the initializer of the scope, and a
// fixed value.
func TestInitialValuesMatchLayers(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	store := strategytest.SeededStore()
	x, _ := batch(0)
	layerLoop(t, s, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{loop.Layers(rc.Scope("layers"), 5, in[0], func(scope *model.Scope, x *graph.Node) *graph.Node {
			h := layers.Dense(scope.In("up").WithInitializer(initializer.GlorotUniformFn(scope)), x, true, 16)
			h = graph.MulScalar(h, 0.5)
			h = graph.Add(h, graph.ExpandLeftToRank(scope.VariableWithValue("offset", []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
				11, 12, 13, 14, 15, 16}).NodeValue(x.Graph()), 2))
			return layers.Dense(scope.In("down"), h, false, width)
		}, loop.Options{})}
	}, x)
	all := values(t, s, store, "/layers")
	weights := strategytest.Numbers(t, all["/layers/up/dense/weights"])
	limit := math.Sqrt(3. / 12) // of 8 and 16 units, and not of 5 layers
	seen := map[float64]bool{}
	for i := range 5 {
		most := 0.
		for _, w := range weights[i*128:][:128] {
			most = max(most, math.Abs(w))
			seen[w] = true
		}
		assert.Greater(t, most, 0.9*limit)
		assert.LessOrEqual(t, most, limit)
	}
	assert.Greater(t, len(seen), 620, "each layer has numbers of its own")
	offset := strategytest.Numbers(t, all["/layers/offset"])
	require.Len(t, offset, 5*16)
	assert.Equal(t, offset[:16], offset[64:])
	assert.Equal(t, make([]float64, 5*16), strategytest.Numbers(t, all["/layers/up/dense/biases"]))
}

// One loop runs twice with a shared scope, as in a siamese model.
func TestLoopsShareVariables(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	store := strategytest.SeededStore()
	layer := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return graph.Tanh(layers.Dense(scope.In("dense"), x, false, width))
	}
	x, _ := batch(0)
	got := layerLoop(t, s, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		y := loop.Layers(rc.Scope("layers"), 2, in[0], layer, loop.Options{})
		y = loop.Layers(rc.Scope().Shared("layers"), 2, y, layer, loop.Options{})
		w := store.GetVariable("/layers/dense/dense/weights").NodeValue(rc.Graph())
		z := in[0]
		for i := range 4 {
			z = graph.Tanh(graph.Dot(z, graph.Squeeze(graph.SliceAxis(w, 0, graph.AxisElem(i%2)), 0)).Product())
		}
		return []*graph.Node{y, z, graph.Gradient(graph.ReduceAllSum(y), w)[0], graph.Gradient(graph.ReduceAllSum(z), w)[0]}
	}, x)
	assert.InDeltaSlice(t, got[1], got[0], 1e-5)
	assert.InDeltaSlice(t, got[3], got[2], 1e-4)
}
