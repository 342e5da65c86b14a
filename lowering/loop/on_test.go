package loop_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// onDevices is a layer in which two regions run on different logical devices, and one tensor is
// split over p devices. The regions read variables.
func onDevices(p int) func(scope *model.Scope, x *graph.Node) *graph.Node {
	return func(scope *model.Scope, x *graph.Node) *graph.Node {
		h := logical.OnDevice(p-1, x, func(x *graph.Node) *graph.Node {
			h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
			return graph.Tanh(layers.Dense(scope.In("up"), h, true, 2*width))
		})
		if p > 1 {
			h = logical.Split(h, 1, p)
		}
		h = remat.Name(graph.Mul(h, h), "activation")
		out := logical.OnDeviceMany(0, []*graph.Node{x, h}, func(in []*graph.Node) []*graph.Node {
			y := layers.Dense(scope.In("down"), in[1], false, width)
			return []*graph.Node{graph.Add(in[0], y), graph.GreaterThan(y, graph.ZerosLike(y)),
				graph.ConvertDType(y, dtypes.Int32)}
		})
		return graph.Add(graph.Where(out[1], out[0], graph.MulScalar(out[0], 0.9)), graph.ConvertDType(out[2],
			dtypes.Float32))
	}
}

// The layers of a loop and blocks contain logical.OnDevice regions.
func TestLoopWithOnMatchesUnrolledLayers(t *testing.T) {
	sys := plugintest.System(t, 4)
	one := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	start := first(t, one)
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
	apart := func(p int, wrap func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node) train.Loss {
		return lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			for i := range depth {
				x = wrap(x, func(x *graph.Node) *graph.Node { return onDevices(p)(rc.Scope(fmt.Sprintf("layers_%d", i)), x) })
			}
			return x
		})
	}
	plain := func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node { return f(x) }
	want := fit(t, one, stored(t, start, true), adam(), apart(1, plain), 6)
	assert.Less(t, want[5], want[0])
	for _, mesh := range [][2]int{{1, 1}, {1, 2}, {2, 2}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		if mesh[0] > 1 {
			assert.InDeltaSlice(t, want, fit(t, s, stored(t, start, true), adam(), apart(mesh[1], plain), 6), 2e-5)
		}
		for name, keep := range policies {
			if mesh[0] == 1 && name != map[int]string{1: "products", 2: "everything"}[mesh[1]] {
				continue
			}
			t.Run(fmt.Sprintf("%dx%d/%s", mesh[0], mesh[1], name), func(t *testing.T) {
				got := fit(t, s, stored(t, start, false), adam(),
					lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
						return loop.Layers(rc.Scope("layers"), depth, x, onDevices(mesh[1]), loop.Options{Keep: keep})
					}), 6)
				assert.InDeltaSlice(t, want, got, 2e-5, "loop")
			})
		}
		if mesh[0] > 1 {
			got := fit(t, s, stored(t, start, true), adam(),
				apart(mesh[1], func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
					return remat.Block(remat.Products(), x, f)
				}), 6)
			assert.InDeltaSlice(t, want, got, 2e-5, "blocks")
			s = strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
				Variables: strategytest.Share(logical.ShardParameters, 2)})
			got = fit(t, s, stored(t, start, false), adam(),
				lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
					return loop.Layers(rc.Scope("layers"), depth, x, onDevices(mesh[1]), loop.Options{Keep: remat.Nothing()})
				}), 6)
			assert.InDeltaSlice(t, want, got, 2e-5, "parameters in parts over the replicas")
		}
	}
}

// A region in a loop draws random numbers, and returns the random state, an empty tensor, and a
// number that every layer reads.
func TestOnDrawsRandomNumbersInLayers(t *testing.T) {
	s := strategytest.New(t, 1, 2)
	step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := in[0]
		two := graph.Const(rc.Graph(), int32(2))
		out := loop.Run(rc.Scope("layers"), 3, loop.Arguments{Carried: in[:1], Shared: []*graph.Node{graph.Zeros(rc.Graph(),
			shapes.Make(dtypes.Int32, 0, 64))}}, func(l *loop.Layer) loop.Results {
			all := logical.OnDeviceMany(1, []*graph.Node{l.Carried[0], l.Shared[0]}, func(in []*graph.Node) []*graph.Node {
				mask := layers.Dropout(l.Scope, graph.OnesLike(in[0]), graph.Scalar(rc.Graph(), dtypes.Float32, 0.5))
				y := graph.Mul(in[0], graph.Add(mask, graph.ConvertDType(two, dtypes.Float32)))
				return []*graph.Node{y, mask, graph.Neg(in[1]), in[0]}
			})
			y := remat.Block(remat.Nothing(), all[0], func(y *graph.Node) *graph.Node {
				return logical.OnDevice(0, y, func(y *graph.Node) *graph.Node { return graph.Div(graph.Square(y), y) })
			})
			return loop.Results{Carried: []*graph.Node{y}, Stacked: []*graph.Node{all[1], all[2]}}
		}, loop.Options{Keep: remat.Nothing()})
		return []*graph.Node{out.Stacked[0], out.Carried[0], graph.Mul(x, graph.Gradient(graph.ReduceAllSum(out.Carried[0]),
			x)[0])}
	}
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(i + 1)
	}
	all := layerLoop(t, s, strategytest.SeededStore(), step, x)
	masks := map[string]bool{}
	for i := range 3 {
		masks[fmt.Sprint(all[0][i*64:][:64])] = true
	}
	assert.Len(t, masks, 3, "each layer has a mask of its own")
	for i, y := range all[1] {
		want := float64(i + 1)
		for l := range 3 {
			want *= all[0][l*64+i] + 2
		}
		assert.InDelta(t, want, y, 1e-2)
		assert.InDelta(t, want, all[2][i], 1e-2, "the gradient has the masks of the forward pass")
	}
}

// The first and the last of 2 x 2 logical devices each compute a part of each layer.
func TestOnWithNamedAxesInLayers(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalAxes: strategytest.Axes("model",
		"sequence")})
	all := layerLoop(t, s, nil, func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		y := loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
			for _, k := range []int{0, 3, 2} {
				x = logical.OnDevice(k, logical.SplitOver(x, "model"),
					func(x *graph.Node) *graph.Node { return graph.AddScalar(graph.MulScalar(x, 2), 1) })
			}
			return x
		}, loop.Options{})
		return []*graph.Node{y, graph.Gradient(graph.ReduceAllSum(y), in[0])[0]}
	}, []float32{1, 2})
	assert.Equal(t, [][]float64{{1023, 1535}, {512, 512}}, all)
}

// In the program, the ops of the region are in a branch that depends on the device.
func TestOnInLayersIsBranch(t *testing.T) {
	s := strategytest.New(t, 2, 2)
	m, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
			return logical.OnDevice(1, x, graph.Tanh)
		}, loop.Options{})}
	}, strategy.FunctionOptions{}).Lowered(context.Background(), shapes.Make(dtypes.Float32, 4))
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`(?s)stablehlo.while.*manual_axes=\{"logical"\}.*(%\d+) = stablehlo.constant `+
		`dense<1> : tensor<i32>\s+(%\d+) = stablehlo.subtract %\d+, %\d+ .*stablehlo.case"\(%\d+\) \(\{\s+%\d+ = `+
		`"stablehlo.tanh".*\}, \{\s+%\d+ = stablehlo.constant dense<0.0>.*stablehlo.all_reduce.*#groups\$logical`),
		string(m.Text))
	assert.Equal(t, 1, strings.Count(string(m.Text), "all_reduce"))
}

// The table lists operations that are not supported on one logical device in a layer.
func TestErrorsOfOnInLayers(t *testing.T) {
	s := strategytest.New(t, 1, 2)
	for want, region := range map[string]func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node{
		"inside another region": func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return logical.OnDevice(0, x, graph.Neg)
		},
		"annotate before or after the OnDevice region": func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return logical.Split(x, 2)
		},
		"call it before or after the OnDevice region": func(rc *strategy.ReplicaContext,
			x *graph.Node) *graph.Node {
			return rc.AllReduce(strategy.Sum, x)
		},
		"inside a region that runs on one logical device; put the logical.OnDevice region elsewhere": func(
			rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(), x, graph.Neg)
		},
		"it returns nothing":          nil,
		"is not a node of this graph": func(*strategy.ReplicaContext, *graph.Node) *graph.Node { return nil },
	} {
		_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{loop.Layers(nil, 2, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
				if want == "it returns nothing" {
					return logical.OnDeviceMany(1, []*graph.Node{x}, func([]*graph.Node) []*graph.Node { return nil })[0]
				}
				return logical.OnDevice(1, x, func(x *graph.Node) *graph.Node { return region(rc, x) })
			}, loop.Options{})}
		}, strategy.FunctionOptions{}).Run(context.Background(), []float32{1, 2})
		require.ErrorContains(t, err, want)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err), want)
	}
	for want, build := range map[string]func(x *graph.Node) *graph.Node{
		"there is no logical device 2 in a replica of 2 devices": func(x *graph.Node) *graph.Node {
			return logical.OnDevice(2,
				x, graph.Neg)
		},
		"the function is nil": func(x *graph.Node) *graph.Node { return logical.OnDevice(0, x, nil) },
		"from outside; pass it as an argument": func(x *graph.Node) *graph.Node {
			y := graph.Exp(x)
			return logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return graph.Mul(x, y) })
		},
	} {
		_, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{loop.Layers(nil, 2, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node { return build(x) },
				loop.Options{})}
		}, strategy.FunctionOptions{}).Run(context.Background(), []float32{1, 2})
		require.ErrorContains(t, err, want)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err), want)
	}
}
