//go:build cgo

package spmd_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

const (
	layers = 3
	width  = 4
	rows   = 2
)

// deep is a step over stacked layers. It returns its loss, an average per layer, and the gradients
// of x, of the stacked weights and biases, and of a scale that all layers share.
func deep(layer func(in []*graph.Node) (y, average, penalty *graph.Node), over func(x, w, b, s *graph.Node,
	layer func(in []*graph.Node) (y, average, penalty *graph.Node)) (y, averages,
	penalty *graph.Node)) func(g *graph.Graph) []*graph.Node {
	return func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, rows, width))
		w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32, layers, width, width))
		b := graph.Parameter(g, "b", shapes.Make(dtypes.Float32, layers, width))
		s := graph.Parameter(g, "s", shapes.Make(dtypes.Float32, width))
		y, averages, penalty := over(x, w, b, s, layer)
		loss := graph.Add(graph.Add(graph.ReduceAllSum(graph.Mul(y, y)), graph.ReduceAllSum(graph.Square(averages))), penalty)
		return append([]*graph.Node{loss, averages}, graph.Gradient(loss, x, w, b, s)...)
	}
}

// dense is a layer with the arguments x, weights, bias and the shared scale.
func dense(split bool) func(in []*graph.Node) (y, average, penalty *graph.Node) {
	return func(in []*graph.Node) (y, average, penalty *graph.Node) {
		x, w, b, s := in[0], in[1], in[2], in[3]
		h := graph.Dot(x, w).Product()
		if split {
			h = logical.Split(h, 1, 2)
		}
		h = graph.Tanh(graph.Add(h, graph.ExpandLeftToRank(b, 2)))
		h = x.Graph().Backend().(*spmd.Trace).EmitOp(h, region.CheckpointName{Name: "activation"},
			func(v *graph.Node) *graph.Node { return v })
		y = graph.Add(x, graph.Mul(graph.Square(h), graph.ExpandLeftToRank(s, 2)))
		return y, graph.ReduceAllMean(h), graph.ReduceAllSum(graph.Square(w))
	}
}

func unrolled(x, w, b, s *graph.Node, layer func(in []*graph.Node) (y, average, penalty *graph.Node)) (y, averages,
	penalty *graph.Node) {
	var all []*graph.Node
	for i := range layers {
		at := func(v *graph.Node) *graph.Node { return graph.Squeeze(graph.SliceAxis(v, 0, graph.AxisElem(i)), 0) }
		var average, p *graph.Node
		x, average, p = layer([]*graph.Node{x, at(w), at(b), s})
		all = append(all, average)
		if penalty == nil {
			penalty = p
		} else {
			penalty = graph.Add(penalty, p)
		}
	}
	return x, graph.Stack(all, 0), penalty
}

func looped(keep region.RematPolicy) func(x, w, b, s *graph.Node, layer func(in []*graph.Node) (y, average,
	penalty *graph.Node)) (y, averages, penalty *graph.Node) {
	return func(x, w, b, s *graph.Node, layer func(in []*graph.Node) (y, average, penalty *graph.Node)) (y, averages,
		penalty *graph.Node) {
		stack := region.Slice{N: layers}
		out := region.Trace(x.Graph().Backend().(*spmd.Trace), region.Loop{N: layers, Policy: keep},
			[]region.Argument{{Node: x, Mapping: region.Carry{}}, {Node: w, Mapping: stack}, {Node: b, Mapping: stack}},
			func(in []*graph.Node) []region.Result {
				y, average, penalty := layer(append(in, s)) // a parameter that is no argument
				return []region.Result{{Node: average, Mapping: stack}, {Node: y, Mapping: region.Carry{}},
					{Node: penalty, Mapping: region.Identity{}}}
			})
		return out[1], out[0], out[2]
	}
}

// blocks makes each layer a separate block.
func blocks(keep region.RematPolicy, layer func(in []*graph.Node) (y, average,
	penalty *graph.Node)) func(in []*graph.Node) (y, average, penalty *graph.Node) {
	return func(in []*graph.Node) (y, average, penalty *graph.Node) {
		args := make([]region.Argument, len(in))
		for i, v := range in {
			args[i] = region.Argument{Node: v, Mapping: region.Identity{}}
		}
		out := region.Trace(in[0].Graph().Backend().(*spmd.Trace), region.Block{Policy: keep}, args,
			func(in []*graph.Node) []region.Result {
				y, average, penalty := layer(in)
				return []region.Result{{Node: y, Mapping: region.Identity{}}, {Node: average, Mapping: region.Identity{}},
					{Node: penalty, Mapping: region.Identity{}}}
			})
		return out[0], out[1], out[2]
	}
}

func passed(t *testing.T, replicas, devices int, build func(g *graph.Graph) []*graph.Node) (*spmd.Module, [][]float32) {
	t.Helper()
	trace := spmd.NewTrace(spmd.Options{Replicas: replicas, LogicalDevices: devices, AllowReplicaProgram: true})
	g := graph.NewGraph(trace, "deep")
	outputs := build(g)
	require.NoError(t, g.Compile(outputs...))
	sig := spmd.Signature{Arguments: make([]spmd.Tensor, 4), Results: make([]spmd.Tensor, len(outputs))}
	m, err := trace.Module(g, sig)
	require.NoError(t, err)
	again, err := trace.Module(g, sig)
	require.NoError(t, err)
	require.Equal(t, string(m.Text), string(again.Text))
	args := make([][]float32, 4)
	for i, a := range m.Arguments {
		args[i] = make([]float32, size(a.GlobalDims))
		for k := range args[i] {
			args[i][k] = float32(math.Sin(float64(k*7+i*13+1))) * 0.5
		}
	}
	return m, run(t, m, args...)
}

var keeps = map[string]region.RematPolicy{
	"everything": {}, "nothing": {Selective: true}, "products": {Selective: true, Products: true},
	"names": {Selective: true, Names: []string{"activation"}},
}

func TestALoopIsWhatItsUnrolledLayersAre(t *testing.T) {
	for _, mesh := range [][2]int{{1, 1}, {2, 2}} {
		split := mesh[1] > 1
		_, want := passed(t, mesh[0], mesh[1], deep(dense(split), unrolled))
		same := func(name string, build func(g *graph.Graph) []*graph.Node) {
			t.Run(fmt.Sprintf("%dx%d/%s", mesh[0], mesh[1], name), func(t *testing.T) {
				m, got := passed(t, mesh[0], mesh[1], build)
				for i := range want {
					require.InDeltaSlice(t, want[i], got[i], 1e-4, "result %d\n%s", i, m.Text)
				}
			})
		}
		for name, keep := range keeps {
			same("loop/"+name, deep(dense(split), looped(keep)))
			same("blocks/"+name, deep(blocks(keep, dense(split)), unrolled))
		}
		same("loop of blocks", deep(blocks(keeps["nothing"], dense(split)), looped(region.RematPolicy{})))
	}
}

// TestAPolicySaysWhatALoopKeeps counts the stacks that a backward pass reads: the arguments of a
// layer always, the activation or the product depending on the policy, and no other values.
func TestAPolicySaysWhatALoopKeeps(t *testing.T) {
	for name, stacks := range map[string]int{"everything": 3, "nothing": 1, "products": 2, "names": 2} {
		m, _ := passed(t, 1, 1, deep(dense(false), looped(keeps[name])))
		_, backward, ok := strings.Cut(string(m.Text), "stablehlo.subtract")
		require.True(t, ok)
		require.Equal(t, stacks, strings.Count(backward, "slice_sizes = array<i64: 1, 2, 4>"), "%s\n%s", name, m.Text)
	}
}
