//go:build cgo

package spmd_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// TestLoopsInLoops sorts and loops within the body of a loop. GoMLX creates all closures in the
// step function.
func TestLoopsInLoops(t *testing.T) {
	repeat := func(x *graph.Node, times int32, do func(x *graph.Node) *graph.Node) *graph.Node {
		counter := shapes.Make(dtypes.Int32)
		cond := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", counter)
			graph.Parameter(g, "x", x.Shape())
			return []*graph.Node{graph.LessThan(i, graph.Const(g, times))}
		})
		body := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", counter)
			return []*graph.Node{graph.Add(i, graph.Const(g, int32(1))), do(graph.Parameter(g, "x", x.Shape()))}
		})
		return graph.While(cond, body, graph.Const(x.Graph(), int32(0)), x)[1]
	}
	for _, p := range []int{1, 2} {
		m := build(t, spmd.Options{LogicalDevices: p, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: []spmd.Tensor{{}}, Results: make([]spmd.Tensor, 2),
		}, func(g *graph.Graph) []*graph.Node {
			x := logical.Split(param(g, "x", 4), p)
			one := graph.Const(g, float32(1))
			return []*graph.Node{
				repeat(x, 3, func(x *graph.Node) *graph.Node { return graph.Sort(graph.Neg(x), 0, true) }),
				repeat(x, 3, func(x *graph.Node) *graph.Node {
					return repeat(x, 2, func(x *graph.Node) *graph.Node { return graph.Add(x, one) })
				}),
			}
		})
		got := run(t, m, []float32{3, 1, 4, 2})
		assert.Equal(t, []float32{-4, -3, -2, -1}, got[0], "sorts over %d devices", p)
		assert.Equal(t, []float32{9, 7, 10, 8}, got[1], "loops over %d devices", p)
	}
}
