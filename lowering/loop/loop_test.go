package loop_test

import (
	"context"
	"fmt"
	"strings"
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
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

const (
	depth = 3
	width = 8
)

// layer is a residual GoMLX layer with attention over the features and batch normalization, split
// over p logical devices.
func layer(p int) func(scope *model.Scope, x *graph.Node) *graph.Node {
	return func(scope *model.Scope, x *graph.Node) *graph.Node {
		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
		h = layers.Dense(scope.In("up"), h, true, 2*width)
		if p > 1 {
			h = logical.Split(h, 1, p)
		}
		h = remat.Name(graph.Tanh(h), "activation")
		return graph.Add(x, layers.Dense(scope.In("down"), h, false, width))
	}
}

type stackOf = func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node

func looped(p int, opts loop.Options) stackOf {
	return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return loop.Layers(rc.Scope("layers"), depth, x, layer(p), opts)
	}
}

func unrolled(p int) stackOf {
	return func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		for i := range depth {
			x = layer(p)(rc.Scope(fmt.Sprintf("layers_%d", i)), x)
		}
		return x
	}
}

func lossSum(of stackOf) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		y := layers.Dense(rc.Scope("output"), of(rc, in[0]), true, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
}

// values returns the variables of a store after its first step, by path.
func values(t *testing.T, s *strategy.TPUStrategy, store *model.Store, prefix ...string) map[string]*tensors.Tensor {
	all := map[string]*tensors.Tensor{}
	for v := range store.IterVariables() {
		for _, p := range prefix {
			if strings.HasPrefix(v.Path(), p) {
				on, ok := s.Variables(store).Lookup(v.Path())
				require.True(t, ok, v.Path())
				value, err := on.Value(context.Background())
				require.NoError(t, err)
				all[v.Path()] = value
			}
		}
	}
	return all
}

// stored returns a store with values. If apart is true, each layer has its own scope instead of
// stacked variables.
func stored(t *testing.T, all map[string]*tensors.Tensor, apart bool) *model.Store {
	store := strategytest.SeededStore()
	for path, value := range all {
		rest, ok := strings.CutPrefix(path, "/layers/")
		if !ok || !apart {
			store.VariableWithValue(path, strategytest.OK(value.LocalClone()))
			continue
		}
		flat, dims := tensors.MustCopyFlatData[float32](value), value.Shape().Dimensions
		size := len(flat) / dims[0]
		for i := range dims[0] {
			store.VariableWithValue(fmt.Sprintf("/layers_%d/%s", i, rest),
				tensors.FromFlatDataAndDimensions(flat[i*size:][:size], dims[1:]...))
		}
	}
	return store
}

// first returns initial values of the model with a loop.
func first(t *testing.T, s *strategy.TPUStrategy) map[string]*tensors.Tensor {
	store := strategytest.SeededStore()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{lossSum(looped(1, loop.Options{}))(rc, in)}
	}, strategy.FunctionOptions{Name: "first", Store: store})
	x, y := batch(0)
	_, err := f.Run(context.Background(), x, y)
	require.NoError(t, err)
	return values(t, s, store, "/layers", "/output")
}

func batch(step int) (x, y *tensors.Tensor) { return strategytest.Batch(step) }

func fit(t *testing.T, s *strategy.TPUStrategy, store *model.Store, opt optimizer.Interface, of train.Loss,
	steps int) (losses []float64) {
	step := strategytest.OK(train.New(s, store, opt, of, train.Options{}))
	for i := range steps {
		x, y := batch(i)
		l, err := step.Run(context.Background(), x, y)
		require.NoError(t, err)
		losses = append(losses, strategytest.OK(l.Float64(context.Background())))
	}
	return losses
}

var policies = map[string]remat.Policy{"everything": remat.Everything(), "nothing": remat.Nothing(),
	"products": remat.Products(), "names": remat.Names("activation")}

func TestLoopMatchesUnrolledLayers(t *testing.T) {
	sys := plugintest.System(t, 4)
	s := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	start := first(t, s)
	stack := start["/layers/up/dense/weights"]
	require.Equal(t, []int{depth, width, 2 * width}, stack.Shape().Dimensions)
	assert.NotEqual(t, strategytest.Numbers(t, stack)[:8], strategytest.Numbers(t, stack)[width*2*width:][:8],
		"each layer has first values of its own")
	optimizers := map[string]func() optimizer.Interface{
		"Adam": func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() },
		"SGD": func() optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithLearningRate(0.005).WithDecay(false).Done()
		},
	}
	want := map[string][]float64{}
	for name, opt := range optimizers {
		want[name] = fit(t, s, stored(t, start, true), opt(), lossSum(unrolled(1)), 20)
		assert.Less(t, want[name][19], want[name][0])
	}
	for _, c := range []struct {
		r, p              int
		optimizer, policy string
	}{{1, 1, "Adam", "products"}, {2, 2, "Adam", "nothing"}, {2, 2, "SGD", "names"}, {4, 1, "Adam", "everything"}} {
		t.Run(fmt.Sprintf("%s/%dx%d/%s", c.optimizer, c.r, c.p, c.policy), func(t *testing.T) {
			on := strategytest.On(t, sys, strategy.Options{Replicas: c.r, LogicalDevices: c.p})
			store := stored(t, start, false)
			got := fit(t, on, store, optimizers[c.optimizer](), lossSum(looped(c.p, loop.Options{Keep: policies[c.policy]})), 20)
			assert.InDeltaSlice(t, want[c.optimizer], got, 2e-4)
			assert.Equal(t, []int{depth, width, 2 * width}, store.GetVariable("/layers/up/dense/weights").Shape().Dimensions)
		})
	}
}
