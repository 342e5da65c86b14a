package loop_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
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

// physicsLayer is one layer of a network with 8 hidden units, split over p logical devices.
func physicsLayer(h, w, b *graph.Node, p int) *graph.Node {
	y := graph.Add(graph.MatMul(h, w), graph.InsertAxes(b, 0))
	if p > 1 {
		y = logical.Split(y, 1, p)
	}
	return graph.Add(h, graph.Tanh(y))
}

// stackOfLayers computes three layers.
type stackOfLayers = func(h, w, b *graph.Node, p int) *graph.Node

func unrolledLayers(wrap func(in []*graph.Node, f func(in []*graph.Node) []*graph.Node) []*graph.Node) stackOfLayers {
	return func(h, w, b *graph.Node, p int) *graph.Node {
		at := func(x *graph.Node, i int) *graph.Node {
			return graph.Squeeze(graph.SliceAxis(x, 0, graph.AxisElem(i)), 0)
		}
		for i := range 3 {
			h = wrap([]*graph.Node{h, at(w, i), at(b, i)}, func(in []*graph.Node) []*graph.Node {
				return []*graph.Node{physicsLayer(in[0], in[1], in[2], p)}
			})[0]
		}
		return h
	}
}

func loopedLayers(keep remat.Policy) stackOfLayers {
	return func(h, w, b *graph.Node, p int) *graph.Node {
		return loop.Run(nil, 3, loop.Arguments{Carried: []*graph.Node{h}, Sliced: []*graph.Node{w, b}},
			func(l *loop.Layer) loop.Results {
				return loop.Results{Carried: []*graph.Node{physicsLayer(l.Carried[0], l.Sliced[0], l.Sliced[1], p)}}
			}, loop.Options{Keep: keep}).Carried[0]
	}
}

// physics returns u(x), u', u”, the loss of the equation u” + u u' = 0, and the gradients of the
// loss with respect to the weights.
func physics(p int, of stackOfLayers) strategy.StepFunc {
	return func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x, first, w, b, last := in[0], in[1], in[2], in[3], in[4]
		u := graph.MatMul(of(graph.Tanh(graph.MatMul(x, first)), w, b, p), last)
		ux := graph.Gradient(graph.ReduceAllSum(u), x)[0]
		uxx := graph.Gradient(graph.ReduceAllSum(ux), x)[0]
		loss := graph.ReduceAllMean(graph.Square(graph.Add(uxx, graph.Mul(u, ux))))
		return append([]*graph.Node{u, ux, uxx, loss}, graph.Gradient(loss, first, w, b, last)...)
	}
}

func physicsArguments() []any {
	numbers := func(dims ...int) *tensors.Tensor {
		x := tensors.FromScalarAndDimensions(0.0, dims...)
		x.MustMutableFlatData(func(flat any) {
			for i := range flat.([]float64) {
				flat.([]float64)[i] = 0.6 * math.Sin(float64(3*i+len(dims)))
			}
		})
		return x
	}
	return []any{numbers(4, 1), numbers(1, 8), numbers(3, 8, 8), numbers(3, 8), numbers(8, 1)}
}

// The derivatives of a physics-informed network equal those of the unrolled network, and the
// gradient of its loss equals finite differences.
func TestLoopsAndBlocksHaveSecondDerivatives(t *testing.T) {
	sys := plugintest.System(t, 8)
	plain := unrolledLayers(func(in []*graph.Node, f func(in []*graph.Node) []*graph.Node) []*graph.Node { return f(in) })
	for _, mesh := range [][2]int{{1, 1}, {2, 4}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		want := layerLoop(t, s, nil, physics(mesh[1], plain), physicsArguments()...)
		if mesh[1] == 1 {
			lossAt := func(delta float64) float64 {
				in := physicsArguments()
				in[2].(*tensors.Tensor).MustMutableFlatData(func(flat any) { flat.([]float64)[70] += delta })
				return layerLoop(t, s, nil, physics(1, plain), in...)[3][0]
			}
			require.InEpsilon(t, (lossAt(1e-5)-lossAt(-1e-5))/2e-5, want[5][70], 1e-5)
		}
		forms := map[string]stackOfLayers{}
		for name, keep := range policies {
			if name == "names" || mesh[1] > 1 && name == "everything" {
				continue
			}
			forms["loop, "+name] = loopedLayers(keep)
			forms["blocks, "+name] = unrolledLayers(func(in []*graph.Node,
				f func(in []*graph.Node) []*graph.Node) []*graph.Node {
				return remat.BlockMany(keep, in, f)
			})
		}
		for name, of := range forms {
			t.Run(fmt.Sprintf("%s, %dx%d", name, mesh[0], mesh[1]), func(t *testing.T) {
				got := layerLoop(t, s, nil, physics(mesh[1], of), physicsArguments()...)
				for i := range want {
					assert.InDeltaSlice(t, want[i], got[i], 1e-10, "result %d", i)
				}
			})
		}
	}
}

// The loss contains second derivatives. The layers of the loop have variables, whose state may be
// sharded.
func TestPhysicsInformedNetworksTrainThroughALoop(t *testing.T) {
	sys := plugintest.System(t, 8)
	informed := func(of stackOf) train.Loss {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			u := layers.Dense(rc.Scope("output"), of(rc, in[0]), true, 1)
			ux := graph.Gradient(graph.ReduceAllSum(u), in[0])[0]
			uxx := graph.Gradient(graph.ReduceAllSum(ux), in[0])[0]
			return graph.ReduceAllMean(graph.Square(graph.Add(graph.MulScalar(graph.ReduceAndKeep(uxx, graph.ReduceSum, -1),
				0.1), graph.Sub(u, in[1]))))
		}
	}
	sgd := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithLearningRate(0.005).WithDecay(false).Done()
	}
	one := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	start := first(t, one)
	want := fit(t, one, stored(t, start, true), sgd(), informed(unrolled(1)), 4)
	for name, c := range map[string]struct {
		opts strategy.Options
		keep remat.Policy
	}{
		"1x1": {strategy.Options{Replicas: 1}, remat.Nothing()},
		"2x4": {strategy.Options{Replicas: 2, LogicalDevices: 4,
			Variables: logical.Rules{logical.Match(`up/.*weights`, logical.SplitInto(1, 1, 4))}}, remat.Nothing()},
		"4x1, parameters sharded": {strategy.Options{Replicas: 4, Variables: strategytest.Share(logical.ShardParameters, 1)},
			remat.Products()},
		"4x1, gradients sharded": {strategy.Options{Replicas: 4, Variables: strategytest.Share(logical.ShardGradients, 1)},
			remat.Everything()},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.On(t, sys, c.opts)
			assert.InDeltaSlice(t, want, fit(t, s, stored(t, start, false), sgd(),
				informed(looped(s.NumLogicalDevices(), loop.Options{Keep: c.keep})), 4), 1e-4)
		})
	}
}
