//go:build cgo

package spmd_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// collectiveCase is a function over shards of x [16, 8] and the replicated w [8], and the
// equivalent function over x with the shards as a leading dimension, [n, 16/n, 8].
type collectiveCase struct {
	name  string
	axes  []string
	shard func(x, w *graph.Node) *graph.Node
	whole func(x, w *graph.Node) *graph.Node // x is [n, 16/n, 8], w is broadcast to its rank
	same  bool                               // the result is equal on all devices
}

func axis(dim int, at ...int) func(x *graph.Node) *graph.Node {
	return func(x *graph.Node) *graph.Node { return graph.SliceAxis(x, dim, graph.AxisRange(at[0], at[1])) }
}

func collectiveCases(axes ...string) []collectiveCase {
	act := func(x, w *graph.Node) *graph.Node {
		return graph.Tanh(graph.Mul(x, graph.ExpandLeftToRank(w, x.Rank())))
	}
	swap := func(x *graph.Node, n int) *graph.Node { // [n, rows, 8] -> one slice of columns per device
		rows := x.Shape().Dimensions[1]
		x = graph.Reshape(x, n, rows, n, 8/n)
		return graph.Reshape(graph.TransposeAllAxes(x, 2, 0, 1, 3), n, n*rows, 8/n)
	}
	size := func(x *graph.Node) int { return x.Shape().Dimensions[0] }
	return []collectiveCase{
		{"sum", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Square(manual.AllReduce(act(x, w), manual.Sum, axes...))
		},
			func(x, w *graph.Node) *graph.Node { return graph.Square(graph.ReduceSum(act(x, w), 0)) }, true},
		{"sum of a sum", axes, func(x, w *graph.Node) *graph.Node {
			h := manual.AllReduce(act(x, w), manual.Sum, axes...)
			return manual.AllReduce(graph.Mul(graph.Square(h), x), manual.Mean, axes...)
		}, func(x, w *graph.Node) *graph.Node {
			h := graph.Square(graph.ReduceSum(act(x, w), 0))
			return graph.ReduceMean(graph.Mul(graph.ExpandLeftToRank(h, 3), x), 0)
		}, true},
		{"max", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Sub(act(x, w), manual.AllReduce(graph.StopGradient(x), manual.Max, axes...))
		}, func(x, w *graph.Node) *graph.Node {
			return graph.Sub(act(x, w), graph.ExpandLeftToRank(graph.StopGradient(graph.ReduceMax(x, 0)), 3))
		}, false},
		{"gather", axes, func(x, w *graph.Node) *graph.Node { return graph.Square(manual.AllGather(act(x, w), 0, axes...)) },
			func(x, w *graph.Node) *graph.Node { return graph.Square(graph.Reshape(act(x, w), 16, 8)) }, true},
		{"gather of columns, scattered", axes, func(x, w *graph.Node) *graph.Node {
			y := graph.Tanh(manual.AllGather(act(x, w), -1, axes...))
			return manual.ReduceScatter(graph.Mul(y, graph.ReduceAndKeep(x, graph.ReduceSum, -1)), 1, axes...)
		}, func(x, w *graph.Node) *graph.Node {
			n, rows := size(x), 16/size(x)
			y := graph.Reshape(graph.TransposeAllAxes(graph.Tanh(act(x, w)), 1, 0, 2), rows, n, 8) // [rows, n, 8]
			factor := graph.ReduceAndKeep(graph.ReduceSum(x, 0), graph.ReduceSum, -1)              // [rows, 1]
			return graph.TransposeAllAxes(graph.Mul(y, graph.Reshape(factor, rows, 1, 1)), 1, 0, 2)
		}, false},
		{"scatter", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Square(manual.ReduceScatter(act(x, w), -1,
				axes...))
		},
			func(x, w *graph.Node) *graph.Node {
				n := size(x)
				y := graph.Square(graph.ReduceSum(act(x, w), 0)) // [rows, 8]
				return graph.TransposeAllAxes(graph.Reshape(y, 16/n, n, 8/n), 1, 0, 2)
			}, false},
		{"exchange", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Square(manual.AllToAll(act(x, w), 1, 0,
				axes...))
		},
			func(x, w *graph.Node) *graph.Node { return graph.Square(swap(act(x, w), size(x))) }, false},
		{"exchange and back", axes, func(x, w *graph.Node) *graph.Node {
			y := graph.Square(manual.AllToAll(act(x, w), 1, 0, axes...))
			return graph.Mul(manual.AllToAll(y, 0, 1, axes...), x)
		}, func(x, w *graph.Node) *graph.Node { return graph.Mul(graph.Square(act(x, w)), x) }, false},
		{"shift", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Mul(graph.Square(manual.Shift(act(x, w), 1, axes...)), x)
		}, func(x, w *graph.Node) *graph.Node {
			y := graph.Square(act(x, w))
			if n := size(x); n > 1 {
				y = graph.Concatenate([]*graph.Node{axis(0, n-1, n)(y), axis(0, 0, n-1)(y)}, 0)
			}
			return graph.Mul(y, x)
		}, false},
		{"send to the next", axes, func(x, w *graph.Node) *graph.Node {
			var pairs [][2]int
			for i := range manual.Size(x.Graph(), axes...) - 1 {
				pairs = append(pairs, [2]int{i, i + 1})
			}
			return graph.Add(manual.Permute(act(x, w), pairs, axes...), graph.Square(x))
		}, func(x, w *graph.Node) *graph.Node {
			n, y := size(x), act(x, w)
			none := graph.ZerosLike(axis(0, 0, 1)(y))
			if n > 1 {
				none = graph.Concatenate([]*graph.Node{none, axis(0, 0, n-1)(y)}, 0)
			}
			return graph.Add(none, graph.Square(x))
		}, false},
		{"broadcast", axes, func(x, w *graph.Node) *graph.Node {
			return graph.Square(manual.Broadcast(act(x, w), manual.Size(x.Graph(), axes...)-1, axes...))
		}, func(x, w *graph.Node) *graph.Node {
			return graph.Square(graph.Squeeze(axis(0, size(x)-1, size(x))(act(x, w)), 0))
		}, true},
		{"index", axes, func(x, w *graph.Node) *graph.Node {
			i := graph.ConvertDType(manual.Index(x.Graph(), axes...), dtypes.Float32)
			return graph.Mul(act(x, w), graph.AddScalar(i, 2))
		}, func(x, w *graph.Node) *graph.Node {
			i := graph.Iota(x.Graph(), graph.Zeros(x.Graph(), x.Shape()).Shape(), 0)
			return graph.Mul(act(x, w), graph.AddScalar(i, 2))
		}, false},
	}
}

// graded returns a result with the gradients of its weighted sum with respect to all parameters.
func graded(y *graph.Node, by ...*graph.Node) []*graph.Node {
	g := y.Graph()
	weights := graph.Cos(graph.IotaFull(g, y.Shape()))
	return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, weights)), by...)...)
}

// regions returns all cases as regions.
func regions(cases []collectiveCase) func(g *graph.Graph) []*graph.Node {
	return func(g *graph.Graph) (all []*graph.Node) {
		x, w := param(g, "x", 16, 8), param(g, "w", 8)
		for _, c := range cases {
			out := sharding.P(c.axes)
			if c.same {
				out = sharding.P()
			}
			y := manual.Region(c.axes, []manual.Arg{manual.In(x, c.axes), manual.In(w)}, []sharding.Spec{out},
				func(in []*graph.Node) []*graph.Node {
					return []*graph.Node{c.shard(in[0], in[1])}
				})[0]
			all = append(all, graded(y, x, w)...)
		}
		return all
	}
}

// plain returns the same cases on one device. The results of the devices are concatenated.
func plain(cases []collectiveCase, n int) func(g *graph.Graph) []*graph.Node {
	return func(g *graph.Graph) (all []*graph.Node) {
		x, w := param(g, "x", 16, 8), param(g, "w", 8)
		for _, c := range cases {
			y := c.whole(graph.Reshape(x, n, 16/n, 8), w)
			if !c.same {
				dims := y.Shape().Dimensions
				y = graph.Reshape(y, append([]int{dims[0] * dims[1]}, dims[2:]...)...)
			}
			all = append(all, graded(y, x, w)...)
		}
		return all
	}
}

// TestCollectivesOfManualRegionsAndTheirGradients compares each collective and its gradients with
// the equivalent function of unsharded tensors on one device.
func TestCollectivesOfManualRegionsAndTheirGradients(t *testing.T) {
	x, w := waves(16*8, 0.3), waves(8, 1.1)
	want := map[int][][]float32{}
	for _, mesh := range []struct {
		newValue
		over []string
	}{
		{newValue{1, []sharding.Axis{{Name: "expert", Size: 1}}}, []string{"expert"}},
		{newValue{1, []sharding.Axis{{Name: "expert", Size: 2}}}, []string{"expert"}},
		{newValue{2, []sharding.Axis{{Name: "expert", Size: 4}}}, []string{"expert"}},
		{newValue{2, []sharding.Axis{model2, expert2}}, []string{"expert", "model"}},
		{newValue{2, []sharding.Axis{model2, expert2}}, []string{"expert"}},
		{newValue{1, []sharding.Axis{model2, {Name: "one", Size: 1}, expert2}}, []string{"model", "one"}},
	} {
		t.Run(fmt.Sprintf("%v over %v", mesh.newValue, mesh.over), func(t *testing.T) {
			cases := collectiveCases(mesh.over...)
			signature := spmd.Signature{Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, 3*len(cases))}
			n := 1
			for _, a := range mesh.axes {
				if slices.Contains(mesh.over, a.Name) {
					n *= a.Size
				}
			}
			if want[n] == nil {
				want[n] = run(t, build(t, spmd.Options{Target: lowering.TargetCPU}, signature, plain(cases, n)), x, w)
			}
			m := build(t, mesh.options(), signature, regions(cases))
			for i, got := range run(t, m, x, w) {
				require.InDeltaSlice(t, want[n][i], got, 2e-5, "%s: result %d\n%s", cases[i/3].name, i%3, m.Text)
				if i%3 == 1 {
					assert.NotEqual(t, make([]float32, len(got)), got, cases[i/3].name)
				}
			}
		})
	}
}
