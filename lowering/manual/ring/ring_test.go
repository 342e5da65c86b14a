//go:build cgo

package ring_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual/ring"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// whole is attention over the whole sequence.
func whole(q, k, v *graph.Node, causal bool) *graph.Node {
	g, length := q.Graph(), q.Shape().Dimensions[1]
	s := graph.MulScalar(graph.Einsum("bqhd,bkhd->bhqk", q, k), 0.5) // 1/sqrt(4)
	if causal {
		at := shapes.Make(dtypes.Int32, length, length)
		sees := graph.ExpandLeftToRank(graph.GreaterOrEqual(graph.Iota(g, at, 0), graph.Iota(g, at, 1)), 4)
		s = graph.Where(graph.BroadcastToShape(sees, s.Shape()), s, graph.BroadcastToShape(graph.Const(g, float32(-1e30)),
			s.Shape()))
	}
	return graph.Einsum("bhqk,bkhd->bqhd", graph.Softmax(s, -1), v)
}

func TestRingAttentionMatchesAttention(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	args := []any{strategytest.Normals(rng, 2, 16, 2, 4), strategytest.Normals(rng, 2, 16, 2, 4), strategytest.Normals(rng,
		2, 16, 2, 4)}
	run := func(s *strategy.TPUStrategy, attend func(q, k, v *graph.Node) *graph.Node) (all [][]float32) {
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			y := attend(in[0], in[1], in[2])
			weights := graph.Cos(graph.IotaFull(y.Graph(), y.Shape()))
			return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, weights)), in...)...)
		}, strategy.FunctionOptions{})
		out, err := f.Run(t.Context(), args...)
		require.NoError(t, err)
		for _, x := range out {
			all = append(all, tensors.MustCopyFlatData[float32](strategytest.OK(x.Local(t.Context(), 0))))
		}
		return all
	}
	one := strategytest.New(t, 1, 1)
	for _, causal := range []bool{false, true} {
		want := run(one, func(q, k, v *graph.Node) *graph.Node { return whole(q, k, v, causal) })
		meshes := [][]sharding.Axis{{{Name: "sequence", Size: 4}}, {{Name: "model", Size: 2}, {Name: "sequence", Size: 2}}}
		if causal {
			meshes = append(meshes, []sharding.Axis{{Name: "sequence", Size: 1}})
		} else {
			meshes = meshes[:1]
		}
		for _, axes := range meshes {
			t.Run(fmt.Sprintf("causal %v over %v", causal, axes), func(t *testing.T) {
				devices := 1
				for _, a := range axes {
					devices *= a.Size
				}
				s := strategytest.On(t, plugintest.System(t, devices), strategy.Options{LogicalAxes: axes})
				for i, got := range run(s, func(q, k, v *graph.Node) *graph.Node {
					return ring.Attention("sequence", q, k, v, ring.Options{Causal: causal})
				}) {
					require.InDeltaSlice(t, want[i], got, 1e-5, "result %d", i)
				}
			})
		}
	}
}

func TestAttentionErrors(t *testing.T) {
	for want, of := range map[string]func(x func(dims ...int) *graph.Node){
		"argument 1 does not have four dimensions": func(x func(dims ...int) *graph.Node) {
			ring.Attention("sequence", x(2, 8, 2, 4), nil, nil, ring.Options{})
		},
		"queries of shape": func(x func(dims ...int) *graph.Node) {
			ring.Attention("sequence", x(2, 8, 4, 4), x(2, 8, 2, 4), x(2, 8, 2, 4), ring.Options{})
		},
		"the same batch, length and heads": func(x func(dims ...int) *graph.Node) {
			ring.Attention("sequence", x(2, 8, 2, 4), x(2, 8, 2, 4), x(2, 12, 2, 4), ring.Options{})
		},
		"dimension 1 of size 6 is not divisible into 4 shards": func(x func(dims ...int) *graph.Node) {
			ring.Attention("sequence", x(2, 6, 2, 4), x(2, 6, 2, 4), x(2, 6, 2, 4), ring.Options{})
		},
		`axis "model": the replica does not have it`: func(x func(dims ...int) *graph.Node) {
			ring.Attention("model", x(2, 8, 2, 4), x(2, 8, 2, 4), x(2, 8, 2, 4), ring.Options{})
		},
	} {
		g := graph.NewGraph(spmd.NewTrace(spmd.Options{LogicalAxes: []sharding.Axis{{Name: "sequence", Size: 4}}}), "step")
		names := 0
		func() {
			defer func() {
				var fault *errkind.Fault
				err, _ := recover().(error)
				require.ErrorAs(t, err, &fault, want)
				require.ErrorContains(t, err, want)
			}()
			of(func(dims ...int) *graph.Node {
				names++
				return graph.Parameter(g, fmt.Sprintf("x%d", names), shapes.Make(dtypes.Float32, dims...))
			})
		}()
	}
}
