package loop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// layerLoop runs a step once over a store and returns the elements of its results.
func layerLoop(t *testing.T, s *strategy.TPUStrategy, store *model.Store, step strategy.StepFunc,
	args ...any) [][]float64 {
	t.Helper()
	out, err := s.Function(step, strategy.FunctionOptions{Store: store, Training: true}).Run(context.Background(), args...)
	require.NoError(t, err)
	var all [][]float64
	for _, v := range out {
		local := strategytest.OK(v.Local(context.Background(), 0))
		all = append(all, strategytest.Numbers(t, local))
	}
	return all
}

func TestLoopArgumentsAndResults(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x, scale, stack := in[0], in[1], in[2]
		out := loop.Run(nil, 3, loop.Arguments{Carried: []*graph.Node{x, graph.ZerosLike(scale)},
			Shared: []*graph.Node{scale}, Sliced: []*graph.Node{stack}},
			func(l *loop.Layer) loop.Results {
				number := graph.ConvertDType(l.Index, dtypes.Float32)
				y := graph.Add(graph.Mul(l.Carried[0], l.Shared[0]), l.Sliced[0])
				return loop.Results{Carried: []*graph.Node{y, graph.Add(l.Carried[1], number)}, Stacked: []*graph.Node{number, y},
					Summed: []*graph.Node{graph.ReduceAllSum(graph.Square(y))}}
			}, loop.Options{})
		grads := graph.Gradient(graph.Add(out.Summed[0], graph.ReduceAllSum(out.Stacked[1])), x, scale, stack)
		return append([]*graph.Node{out.Carried[0], out.Carried[1], out.Stacked[0], out.Stacked[1], out.Summed[0]}, grads...)
	}
	want := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x, scale, stack := in[0], in[1], in[2]
		y, sum := x, graph.Scalar(rc.Graph(), dtypes.Float32, 0)
		var all []*graph.Node
		for i := range 3 {
			y = graph.Add(graph.Mul(y, scale), graph.Squeeze(graph.SliceAxis(stack, 0, graph.AxisElem(i)), 0))
			all, sum = append(all, y), graph.Add(sum, graph.ReduceAllSum(graph.Square(y)))
		}
		ys := graph.Stack(all, 0)
		grads := graph.Gradient(graph.Add(sum, graph.ReduceAllSum(ys)), x, scale, stack)
		return append([]*graph.Node{y, graph.Const(rc.Graph(), float32(3)), graph.Const(rc.Graph(), []float32{0, 1, 2}), ys,
			sum}, grads...)
	}
	args := []any{[]float32{1, 2}, float32(0.5), [][]float32{{1, 2}, {3, -4}, {0.5, 6}}}
	assert.Equal(t, layerLoop(t, s, nil, want, args...), layerLoop(t, s, nil, step, args...))
}

func TestLayersDrawDifferentRandomNumbers(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	for name, keep := range policies {
		if name == "names" || name == "products" {
			continue
		}
		store := strategytest.SeededStore()
		step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			out := loop.Run(rc.Scope("layers"), 4, loop.Arguments{Carried: in[:1]}, func(l *loop.Layer) loop.Results {
				mask := layers.Dropout(l.Scope, graph.OnesLike(l.Carried[0]), graph.Scalar(rc.Graph(), dtypes.Float32, 0.5))
				return loop.Results{Carried: []*graph.Node{graph.Add(l.Carried[0], graph.Mul(l.Carried[0], mask))},
					Stacked: []*graph.Node{mask}}
			}, loop.Options{Keep: keep})
			// The gradient has the masks of the forward pass: y = x * product of (1 + mask).
			x := in[0]
			return []*graph.Node{out.Stacked[0], out.Carried[0], graph.Mul(x, graph.Gradient(graph.ReduceAllSum(out.Carried[0]),
				x)[0])}
		}
		x := make([]float32, 64)
		for i := range x {
			x[i] = float32(i + 1)
		}
		a := layerLoop(t, s, store, step, x)
		assert.InDeltaSlice(t, a[1], a[2], 1e-3, name)
		b := layerLoop(t, s, store, step, x)
		seen := map[string]bool{}
		for _, masks := range [][]float64{a[0], b[0]} {
			for i := range 4 {
				seen[fmt.Sprint(masks[i*64:][:64])] = true
			}
		}
		assert.Len(t, seen, 8, "each layer and each step has a mask of its own")
	}
}

// The layers update the averages of a batch normalization and add regularization losses.
func TestLayersHaveSeparateState(t *testing.T) {
	sys := plugintest.System(t, 2)
	layer := func(scope *model.Scope, x *graph.Node) *graph.Node {
		h := layers.Dense(scope.In("dense"), x, true, width)
		h = norm.BatchNorm(scope.In("norm"), h, -1).Done()
		gomlxtrain.AddRegularizationLoss(graph.MulScalar(graph.ReduceAllMean(graph.Square(h)), 0.1))
		return graph.Add(x, graph.Tanh(h))
	}
	looped := func(keep remat.Policy) stackOf {
		return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), depth, x, layer, loop.Options{Keep: keep})
		}
	}
	apart := func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		for i := range depth {
			x = layer(rc.Scope(fmt.Sprintf("layers_%d", i)), x)
		}
		return x
	}
	seeded := func(all map[string]*tensors.Tensor, apart bool) *model.Store {
		store := stored(t, all, apart)
		store.SetParam(regularizer.ParamL2, 0.01)
		return store
	}
	s := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	store := strategytest.SeededStore()
	x, y := batch(0)
	layerLoop(t, s, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{lossSum(looped(remat.Everything()))(rc, in)}
	}, x, y)
	start := values(t, s, store, "/layers", "/output")
	for _, path := range []string{"/layers/norm/batch_normalization/mean", "/layers/norm/batch_normalization/avg_weight"} {
		require.Contains(t, start, path)
		assert.False(t, store.GetVariable(path).Trainable)
	}
	sgd := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithLearningRate(0.01).WithDecay(false).Done()
	}
	wanted := seeded(start, true)
	want := fit(t, s, wanted, sgd(), lossSum(apart), 5)
	final := values(t, s, wanted, "/layers")
	for name, keep := range map[string]remat.Policy{"everything": remat.Everything(), "nothing": remat.Nothing()} {
		t.Run(name, func(t *testing.T) {
			store := seeded(start, false)
			assert.InDeltaSlice(t, want, fit(t, s, store, sgd(), lossSum(looped(keep)), 5), 1e-4)
			for path, stack := range values(t, s, store, "/layers") {
				numbers := strategytest.Numbers(t, stack)
				for i := range depth {
					one := strategytest.Numbers(t, final[fmt.Sprintf("/layers_%d%s", i, path[len("/layers"):])])
					assert.InDeltaSlice(t, one, numbers[i*len(one):][:len(one)], 1e-4, path)
				}
			}
		})
	}
}

// A loop with two layers contains a loop with three sublayers and blocks.
func TestNestedLoops(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	dense := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return graph.Add(x, graph.Tanh(layers.Dense(scope.In("dense"), x, true, width)))
	}
	nested := func(outer, inner remat.Policy, block bool) train.Loss {
		return lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(rc.Scope("layers"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
				x = layers.Dropout(scope, x, graph.Scalar(x.Graph(), dtypes.Float32, 1e-9))
				x = loop.Layers(scope.In("inner"), 3, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
					if block {
						return remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return dense(scope, x) })
					}
					return dense(scope, x)
				}, loop.Options{Keep: inner})
				return layers.Dense(scope.In("outer"), x, true, width)
			}, loop.Options{Keep: outer})
		})
	}
	sgd := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithLearningRate(0.01).WithDecay(false).Done()
	}
	store := strategytest.SeededStore()
	x, y := batch(0)
	layerLoop(t, s, store, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{nested(remat.Everything(), remat.Everything(), false)(rc, in)}
	}, x, y)
	start := values(t, s, store, "/layers", "/output")
	require.Equal(t, []int{2, 3, width, width}, start["/layers/inner/dense/dense/weights"].Shape().Dimensions)
	want := fit(t, s, stored(t, start, false), sgd(),
		lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			at := func(path string, index ...int) *graph.Node {
				v := rc.Scope().Store().GetVariable(path).NodeValue(rc.Graph())
				for _, i := range index {
					v = graph.Squeeze(graph.SliceAxis(v, 0, graph.AxisElem(i)), 0)
				}
				return v
			}
			for i := range 2 {
				for k := range 3 {
					x = graph.Add(x, graph.Tanh(graph.Add(graph.Dot(x, at("/layers/inner/dense/dense/weights", i, k)).Product(),
						graph.ExpandLeftToRank(at("/layers/inner/dense/dense/biases", i, k), 2))))
				}
				x = graph.Add(graph.Dot(x, at("/layers/outer/dense/weights", i)).Product(),
					graph.ExpandLeftToRank(at("/layers/outer/dense/biases", i), 2))
			}
			return x
		}), 4)
	for name, of := range map[string]train.Loss{
		"inner products": nested(remat.Everything(), remat.Products(), false), "outer nothing": nested(remat.Nothing(),
			remat.Everything(), false),
		"both nothing, blocks": nested(remat.Nothing(), remat.Nothing(), true),
	} {
		t.Run(name, func(t *testing.T) {
			assert.InDeltaSlice(t, want, fit(t, s, stored(t, start, false), sgd(), of, 4), 1e-4)
		})
	}
}
