package loop_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// nest builds nested loops of two layers each, with different variables in each loop. drop adds a
// dropout with a very small rate to each layer.
func nest(loops, p int, drop bool) stackOf {
	var in func(scope *model.Scope, x *graph.Node, loops int) *graph.Node
	in = func(scope *model.Scope, x *graph.Node, loops int) *graph.Node {
		if loops == 0 {
			return x
		}
		return loop.Layers(scope, 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
			if drop {
				x = layers.Dropout(scope, x, graph.Scalar(x.Graph(), dtypes.Float32, 1e-9))
			}
			x = in(scope.In("inner"), x, loops-1)
			h := graph.MulScalar(graph.Tanh(layers.Dense(scope.In("dense"), x, true, width)), 0.1)
			return graph.Add(x, logical.Split(h, 1, p))
		}, loop.Options{})
	}
	return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return in(rc.Scope("layers"), x, loops) }
}

// unrolledNest is nest without loops, with the same stacked variables.
func unrolledNest(loops int) stackOf {
	return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		var in func(path string, x *graph.Node, loops int, at ...int) *graph.Node
		in = func(path string, x *graph.Node, loops int, at ...int) *graph.Node {
			part := func(name string) *graph.Node {
				v := rc.Scope().Store().GetVariable(path + "/dense/dense/" + name).NodeValue(rc.Graph())
				for _, i := range at {
					v = graph.Squeeze(graph.SliceAxis(v, 0, graph.AxisElem(i)), 0)
				}
				return v
			}
			inner := path
			if len(at) > 0 {
				inner += "/inner"
			}
			for i := 0; i < 2 && loops > 0; i++ {
				x = in(inner, x, loops-1, append(at[:len(at):len(at)], i)...)
			}
			if len(at) == 0 {
				return x
			}
			h := graph.Add(graph.Dot(x, part("weights")).Product(), graph.ExpandLeftToRank(part("biases"), 2))
			return graph.Add(x, graph.MulScalar(graph.Tanh(h), 0.1))
		}
		return in("/layers", x, loops)
	}
}

// Nested loops with four and five levels train like the unrolled layers.
func TestDeeplyNestedLoops(t *testing.T) {
	sgd := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithLearningRate(0.01).WithDecay(false).Done()
	}
	one, several := strategytest.New(t, 1, 1), strategytest.New(t, 4, 2)
	for _, loops := range []int{4, 5} {
		store := strategytest.SeededStore()
		x, y := batch(0)
		layerLoop(t, one, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{lossSum(nest(loops, 1, false))(rc, in)}
		}, x, y)
		start := values(t, one, store, "/layers", "/output")
		require.Len(t, start, 2*loops+2)
		deepest := start["/layers/inner/inner/inner/dense/dense/weights"]
		require.Equal(t, []int{2, 2, 2, 2, width, width}, deepest.Shape().Dimensions)
		plain := stored(t, start, false)
		want := fit(t, one, plain, sgd(), lossSum(unrolledNest(loops)), 2)
		ends := values(t, one, plain, "/layers", "/output")
		for _, s := range []*strategy.TPUStrategy{one, several} {
			r, p := s.NumReplicasInSync(), s.NumLogicalDevices()
			t.Run(fmt.Sprintf("%dx%d, %d loops", r, p, loops), func(t *testing.T) {
				store := stored(t, start, false)
				assert.InDeltaSlice(t, want, fit(t, s, store, sgd(), lossSum(nest(loops, p, s == several)), 2), 1e-4)
				for path, got := range values(t, s, store, "/layers", "/output") {
					assert.InDeltaSlice(t, strategytest.Numbers(t, ends[path]), strategytest.Numbers(t, got), 1e-4, path)
				}
			})
		}
	}
}

// Nested loops draw no random numbers that the layers do not request.
func TestNestedLoopsDrawOnlyRequestedNumbers(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	for loops := 1; loops < 6; loops++ {
		for _, drop := range []bool{false, true} {
			store := strategytest.SeededStore()
			m, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				x := nest(loops, 1, drop)(rc, in[0])
				return append(graph.Gradient(graph.ReduceAllSum(x), in[0]), x)
			}, strategy.FunctionOptions{Store: store, Training: true}).Lowered(t.Context(), [][]float32{make([]float32, width)})
			require.NoError(t, err, "%d loops, dropout %t", loops, drop)
			assert.Equal(t, drop, strings.Contains(string(m.Text), "rng_bit_generator"), "%d loops", loops)
		}
	}
}
