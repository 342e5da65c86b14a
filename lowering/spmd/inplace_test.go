//go:build cgo

package spmd_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// TestTensorsUpdatedFromThemselves writes parts of a tensor over other parts of it, where the
// compiler sees the tensor as a reshape of another one. An in-place update must not read
// overwritten elements.
func TestTensorsUpdatedFromThemselves(t *testing.T) {
	tensors := map[string]func(x *graph.Node) *graph.Node{
		"argument": func(x *graph.Node) *graph.Node { return x },
		"reshape":  func(x *graph.Node) *graph.Node { return graph.Reshape(graph.Neg(graph.Reshape(x, 2, 4)), 8) },
		"gather": func(x *graph.Node) *graph.Node {
			return graph.Gather(x, graph.Const(x.Graph(), [][]int32{{0}, {3}, {2}, {7}, {4}, {5}, {6}, {1}}), false)
		},
		"cumulative sum": func(x *graph.Node) *graph.Node { return graph.CumSum(x, 0) },
		"product": func(x *graph.Node) *graph.Node {
			return graph.Reshape(graph.MatMul(graph.Reshape(x, 4, 2), graph.Const(x.Graph(), [][]float32{{1, 2}, {3, 4}})), 8)
		},
	}
	parts := map[string]func(x *graph.Node) *graph.Node{
		"slice":    func(x *graph.Node) *graph.Node { return graph.Slice(x, graph.AxisRange(0, 7)) },
		"negated":  func(x *graph.Node) *graph.Node { return graph.Neg(graph.Slice(x, graph.AxisRange(0, 7))) },
		"reversed": func(x *graph.Node) *graph.Node { return graph.Reverse(graph.Slice(x, graph.AxisRange(0, 7)), 0) },
		"rows": func(x *graph.Node) *graph.Node {
			return graph.Reshape(graph.Slice(graph.Reshape(x, 4, 2), graph.AxisRange(0, 3)), 6)
		},
	}
	update := func(x *graph.Node, part func(*graph.Node) *graph.Node) *graph.Node {
		return graph.DynamicUpdateSlice(x, part(x), []*graph.Node{graph.Const(x.Graph(), int32(1))})
	}
	functions := 0
	scopes := map[string]func(x *graph.Node, part func(*graph.Node) *graph.Node) *graph.Node{
		"step": update,
		"loop that runs once": func(x *graph.Node, part func(*graph.Node) *graph.Node) *graph.Node {
			counter := shapes.Make(dtypes.Int32)
			cond := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
				i := graph.Parameter(g, "i", counter)
				graph.Parameter(g, "x", x.Shape())
				return []*graph.Node{graph.LessThan(i, graph.Const(g, int32(1)))}
			})
			body := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
				i := graph.Parameter(g, "i", counter)
				return []*graph.Node{graph.Add(i, graph.Const(g, int32(1))), update(graph.Parameter(g, "x", x.Shape()), part)}
			})
			return graph.While(cond, body, graph.Const(x.Graph(), int32(0)), x)[1]
		},
		"function": func(x *graph.Node, part func(*graph.Node) *graph.Node) *graph.Node {
			functions++
			f := graph.NewFunction(x.Graph(), "f"+strconv.Itoa(functions), func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{update(graph.Parameter(g, "x", x.Shape()), part)}
			})
			return f.Call(x)[0]
		},
	}
	kinds := slices.Sorted(maps.Keys(parts))
	for name, tensor := range tensors {
		step := func(p int, out func(x *graph.Node) []*graph.Node) [][]float32 {
			m := build(t, spmd.Options{LogicalDevices: p, Target: lowering.TargetCPU}, spmd.Signature{
				Arguments: []spmd.Tensor{{}}, Results: make([]spmd.Tensor, len(kinds)+1),
			}, func(g *graph.Graph) []*graph.Node {
				x := tensor(logical.Split(param(g, "x", 8), p))
				return append(out(x), x)
			})
			return run(t, m, count(8))
		}
		whole := step(1, func(x *graph.Node) (out []*graph.Node) {
			for _, kind := range kinds {
				out = append(out, parts[kind](x))
			}
			return out
		})
		for scope, within := range scopes {
			for _, p := range []int{1, 2} {
				got := step(p, func(x *graph.Node) (out []*graph.Node) {
					for _, kind := range kinds {
						out = append(out, within(x, parts[kind]))
					}
					return out
				})
				for i, kind := range kinds {
					want := slices.Clone(whole[len(kinds)])
					copy(want[1:], whole[i])
					assert.Equal(t, want, got[i], "%s of a %s in a %s over %d devices", kind, name, scope, p)
				}
			}
		}
	}
}
