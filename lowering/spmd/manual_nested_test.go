//go:build cgo

package spmd_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// TestRegionsInRegions nests a region over one axis in a region over another axis, a loop with a
// collective and a block in a region, and all of this in a loop.
func TestRegionsInRegions(t *testing.T) {
	within := func(axes []string, in manual.Arg, out sharding.Spec, f func(x *graph.Node) *graph.Node) *graph.Node {
		return manual.Region(axes, []manual.Arg{in}, []sharding.Spec{out},
			func(in []*graph.Node) []*graph.Node { return []*graph.Node{f(in[0])} })[0]
	}
	repeat := func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
		return loop.Run(nil, 2, loop.Arguments{Carried: []*graph.Node{x}}, func(l *loop.Layer) loop.Results {
			return loop.Results{Carried: []*graph.Node{f(l.Carried[0])}}
		}, loop.Options{}).Carried[0]
	}
	for name, wrap := range map[string]func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node{
		"as it is":  func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node { return f(f(x)) },
		"in a loop": repeat,
		"in blocks": func(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
			return remat.Block(remat.Nothing(), remat.Block(remat.Products(), x, f), f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(n newValue) *spmd.Module {
				return build(t, n.options(), spmd.Signature{Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, 3)},
					func(g *graph.Graph) []*graph.Node {
						x, w := param(g, "x", 4, 8), param(g, "w", 4)
						y := wrap(x, func(x *graph.Node) *graph.Node {
							return within([]string{"model"}, manual.In(x, nil, "model"), sharding.P(nil, "model"),
								func(x *graph.Node) *graph.Node {
									mine := graph.AddScalar(graph.ConvertDType(graph.Min(manual.Index(g), graph.Const(g, int32(0))),
										dtypes.Float32),
										1)
									x = within([]string{"expert"}, manual.In(x, "expert"), sharding.P("expert"), func(x *graph.Node) *graph.Node {
										sum := manual.AllReduce(graph.ReduceAllSum(graph.Square(x)), manual.Sum) // over both axes
										return graph.Div(x, graph.Sqrt(graph.AddScalar(sum, 1)))
									})
									x = repeat(x, func(x *graph.Node) *graph.Node {
										return graph.Tanh(graph.Mul(graph.Add(manual.Shift(manual.Shift(x, 1), -1), x), graph.InsertAxes(w, -1)))
									})
									x = remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node {
										return graph.Add(x, manual.AllReduce(graph.ReduceAndKeep(graph.Exp(x), graph.ReduceMean, 1), manual.Mean))
									})
									return graph.Mul(x, mine)
								})
						})
						return graded(y, x, w)
					})
			}
			x, w := waves(32, 0.2), waves(4, 0.7)
			want := run(t, build(newValue{1, []sharding.Axis{{Name: "model", Size: 1}, {Name: "expert", Size: 1}}}), x, w)
			for _, n := range []newValue{{2, []sharding.Axis{model2, expert2}}, {1, []sharding.Axis{{Name: "expert", Size: 1},
				model2}}} {
				m := build(n)
				require.Equal(t, string(m.Text), string(build(n).Text), "the same in every process")
				for i, got := range run(t, m, x, w) {
					require.InDeltaSlice(t, want[i], got, 1e-5, "%v: result %d\n%s", n, i, m.Text)
				}
			}
		})
	}
}

// TestTensorParallelLayersSendNoMoreThanTheyHaveTo counts the collectives of two dense layers with
// split weights: one all-reduce in the forward pass, and one in the backward pass for the gradient
// of the input.
func TestTensorParallelLayersSendNoMoreThanTheyHaveTo(t *testing.T) {
	m := build(t, spmd.Options{LogicalAxes: []sharding.Axis{{Name: "model", Size: 4}}}, spmd.Signature{
		Arguments: make([]spmd.Tensor, 3), Results: make([]spmd.Tensor, 4),
	}, func(g *graph.Graph) []*graph.Node {
		x, up, down := param(g, "x", 2, 8), param(g, "up", 8, 16), param(g, "down", 16, 8)
		y := manual.Region(nil, []manual.Arg{manual.In(x), manual.In(up, nil, "model"), manual.In(down, "model")},
			[]sharding.Spec{sharding.P()},
			func(in []*graph.Node) []*graph.Node {
				h := graph.Dot(graph.Tanh(graph.Dot(in[0], in[1]).Product()), in[2]).Product()
				return []*graph.Node{graph.Add(graph.Tanh(manual.AllReduce(h, manual.Sum)), in[0])}
			})[0]
		return graded(y, x, up, down)
	})
	assert.Equal(t, 2, strings.Count(string(m.Text), "stablehlo.all_reduce"), "%s", m.Text)
	assert.Contains(t, string(m.Text), `#groups$model = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>`)
}

func TestWhatEscapesARegionIsTheSameOnAllDevices(t *testing.T) {
	step := func(escape func(x *graph.Node) *graph.Node) (*spmd.Module, error) {
		tr := spmd.NewTrace(spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU})
		g := graph.NewGraph(tr, "step")
		x := param(g, "x", 4)
		var inside *graph.Node
		y := manual.Region(nil, []manual.Arg{manual.In(x, "logical")}, []sharding.Spec{sharding.P("logical")},
			func(in []*graph.Node) []*graph.Node {
				inside = escape(in[0])
				return []*graph.Node{graph.Neg(in[0])}
			})[0]
		require.NoError(t, g.Compile(y, graph.MulScalar(inside, 2)))
		return tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 2)})
	}
	m, err := step(func(x *graph.Node) *graph.Node { return manual.AllReduce(x, manual.Sum) })
	require.NoError(t, err)
	assert.Equal(t, [][]float32{{-1, -2, -3, -4}, {8, 12}}, run(t, m, []float32{1, 2, 3, 4}))
	_, err = step(graph.Exp)
	var fault *errkind.Fault
	require.ErrorAs(t, err, &fault)
	assert.ErrorContains(t, err,
		"differs between the devices, and is used outside; return it from the region, with a spec")
}

// TestClosuresOfARegionMayHoldCollectives runs a GoMLX loop in a region. The loop state varies like
// the ops that compute it.
func TestClosuresOfARegionMayHoldCollectives(t *testing.T) {
	step := func(equal bool) func(g *graph.Graph) []*graph.Node {
		return func(g *graph.Graph) []*graph.Node {
			x, out := param(g, "x", 4), sharding.P("logical")
			if equal {
				out = sharding.P()
			}
			return manual.Region(nil, []manual.Arg{manual.In(x, "logical")}, []sharding.Spec{out},
				func(in []*graph.Node) []*graph.Node {
					state := in[0]
					if equal {
						state = manual.AllReduce(state, manual.Sum)
					}
					cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
						i := graph.Parameter(g, "i", graph.Const(g, int32(0)).Shape())
						_ = graph.Parameter(g, "x", state.Shape())
						return []*graph.Node{graph.LessThan(i, graph.Const(g, int32(3)))}
					})
					body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
						i, x := graph.Parameter(g, "i", graph.Const(g, int32(0)).Shape()), graph.Parameter(g, "x", state.Shape())
						if equal {
							x = manual.AllReduce(graph.Add(x, in[0]), manual.Mean)
						} else {
							x = manual.Shift(x, 1)
						}
						return []*graph.Node{graph.AddScalar(i, 1), x}
					})
					return graph.While(cond, body, graph.Const(g, int32(0)), state)[1:]
				})
		}
	}
	opts := spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}
	sig := spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1)}
	assert.Equal(t, [][]float32{{3, 4, 1, 2}}, run(t, build(t, opts, sig, step(false)), []float32{1, 2, 3, 4}))
	assert.Equal(t, [][]float32{{10, 15}}, run(t, build(t, opts, sig, step(true)), []float32{1, 2, 3, 4}))
}
