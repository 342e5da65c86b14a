//go:build cgo

package moe_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual/moe"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// feedForward is an expert with two layers.
func feedForward(x *graph.Node, w []*graph.Node) *graph.Node {
	return graph.Einsum("esh,ehd->esd", graph.Tanh(graph.Einsum("esd,edh->esh", x, w[0])), w[1])
}

// loss is a scalar function of all results of a layer.
func loss(out moe.Result) *graph.Node {
	weights := graph.Cos(graph.IotaFull(out.Output.Graph(), out.Output.Shape()))
	return graph.Add(graph.ReduceAllSum(graph.Mul(out.Output, weights)), out.BalanceLoss)
}

// run returns the result, the dropped fraction, and the gradients of tokens, gate and weights.
func run(t *testing.T, s *strategy.TPUStrategy, opts moe.Options, args []any) (all [][]float32) {
	t.Helper()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		out := moe.Layer(in[0], in[1], in[2:], feedForward, opts)
		return append([]*graph.Node{out.Output, out.BalanceLoss, out.Dropped}, graph.Gradient(loss(out), in...)...)
	}, strategy.FunctionOptions{})
	out, err := f.Run(t.Context(), args...)
	require.NoError(t, err)
	for _, x := range out {
		all = append(all, tensors.MustCopyFlatData[float32](strategytest.OK(x.Local(t.Context(), 0))))
	}
	return all
}

func arguments(tokens, width, experts, hidden int) []any {
	rng := rand.New(rand.NewPCG(3, 4))
	return []any{strategytest.Normals(rng, tokens, width), strategytest.Normals(rng, width, experts),
		strategytest.Normals(rng, experts, width, hidden), strategytest.Normals(rng, experts, hidden, width)}
}

func TestLayerOnDevicesMatchesOneDevice(t *testing.T) {
	args := arguments(32, 4, 8, 6)
	for _, opts := range []moe.Options{{TopK: 2, CapacityFactor: 0.75, Groups: 4}, {TopK: 1, CapacityFactor: 8,
		Groups: 8}} {
		opts.Axis = "expert"
		one := strategytest.On(t, plugintest.System(t, 1),
			strategy.Options{LogicalAxes: []sharding.Axis{{Name: "expert", Size: 1}}})
		want := run(t, one, opts, args)
		dropped := want[2][0]
		assert.Equal(t, opts.CapacityFactor < 8, dropped > 0, "dropped %v", dropped)
		assert.Less(t, dropped, float32(0.8))
		for _, axes := range [][]sharding.Axis{{{Name: "expert", Size: 4}}, {{Name: "model", Size: 2},
			{Name: "expert", Size: 2}}} {
			t.Run(fmt.Sprintf("%+v over %v", opts, axes), func(t *testing.T) {
				s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{LogicalAxes: axes})
				for i, got := range run(t, s, opts, args) {
					require.InDeltaSlice(t, want[i], got, 1e-4, "result %d", i)
				}
			})
		}
	}
}

// With sufficient capacity, the result equals the weighted sum of the experts computed for every
// token.
func TestLayerIsWeightedSumOfExperts(t *testing.T) {
	args := arguments(16, 4, 4, 6)
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{LogicalAxes: strategytest.Axes("expert", "model")})
	got := run(t, s, moe.Options{Axis: "expert", TopK: 2, CapacityFactor: 4}, args)
	assert.Zero(t, got[2][0])
	f := strategytest.New(t, 1, 1).Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x, p := in[0], graph.Softmax(graph.Dot(in[0], in[1]).Product(), -1)
		all := graph.Einsum("teh,ehd->ted", graph.Tanh(graph.Einsum("td,edh->teh", x, in[2])), in[3])
		p = graph.Where(graph.TopKMask(graph.StopGradient(p), 2, -1), p, graph.ZerosLike(p))
		p = graph.Div(p, graph.ReduceAndKeep(p, graph.ReduceSum, -1))
		return []*graph.Node{graph.ReduceSum(graph.Mul(all, graph.InsertAxes(p, -1)), 1)}
	}, strategy.FunctionOptions{})
	out, err := f.Run(t.Context(), args...)
	require.NoError(t, err)
	want := tensors.MustCopyFlatData[float32](strategytest.OK(out[0].Local(t.Context(), 0)))
	assert.InDeltaSlice(t, want, got[0], 1e-4)
}

func TestLayerErrors(t *testing.T) {
	for want, change := range map[string]func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node, *graph.Node,
		[]*graph.Node){
		"6 experts on 4 devices": func(x, gate, up *graph.Node, _ *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			return x, graph.SliceAxis(gate, 1, graph.AxisRange(0, 6)), nil
		},
		"Options.TopK is 9 for 8 experts": func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node, *graph.Node,
			[]*graph.Node) {
			opts.TopK = 9
			return x, gate, []*graph.Node{up}
		},
		"a capacity of -1": func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			opts.CapacityFactor = -1
			return x, gate, []*graph.Node{up}
		},
		"6 groups on 4 devices": func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			opts.Groups = 6
			return x, gate, []*graph.Node{up}
		},
		"32 tokens in 12 groups": func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			opts.Groups = 12
			return x, gate, []*graph.Node{up}
		},
		"weights 1 are": func(x, gate, up *graph.Node, _ *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			return x, gate, []*graph.Node{up, x}
		},
		"pass [tokens, width]": func(x, gate, up *graph.Node, _ *moe.Options) (*graph.Node, *graph.Node, []*graph.Node) {
			return up, gate, nil
		},
		`axis "stage": the replica does not have it`: func(x, gate, up *graph.Node, opts *moe.Options) (*graph.Node,
			*graph.Node, []*graph.Node) {
			opts.Axis = "stage"
			return x, gate, nil
		},
		"return [experts, places, width]": func(x, gate, up *graph.Node, _ *moe.Options) (*graph.Node, *graph.Node,
			[]*graph.Node) {
			return x, gate, []*graph.Node{up}
		},
	} {
		g := graph.NewGraph(spmd.NewTrace(spmd.Options{LogicalAxes: []sharding.Axis{{Name: "expert", Size: 4}}}), "step")
		of := func(name string, dims ...int) *graph.Node {
			return graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...))
		}
		func() {
			defer func() {
				var fault *errkind.Fault
				err, _ := recover().(error)
				require.ErrorAs(t, err, &fault, want)
				assert.ErrorContains(t, err, want)
			}()
			opts := moe.Options{Axis: "expert"}
			x, gate, w := change(of("x", 32, 4), of("gate", 4, 8), of("up", 8, 4, 6), &opts)
			moe.Layer(x, gate, w, func(x *graph.Node, _ []*graph.Node) *graph.Node { return graph.ReduceAllSum(x) }, opts)
		}()
	}
}
