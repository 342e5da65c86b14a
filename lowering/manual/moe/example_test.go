//go:build cgo

package moe_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual/moe"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Two experts run on two devices. The gate sends a token to the first expert if its first number is
// larger. The first expert negates, and the second doubles.
func ExampleLayer() {
	s, done := strategytest.Example(1, 2)
	defer done()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		out := moe.Layer(in[0], in[1], in[2:], func(x *graph.Node, w []*graph.Node) *graph.Node {
			return graph.Einsum("esd,ed->esd", x, w[0])
		}, moe.Options{Axis: "logical", TopK: 1, CapacityFactor: 2})
		return []*graph.Node{out.Output, out.Dropped}
	}, strategy.FunctionOptions{})
	tokens := [][]float32{{1, 0}, {0, 1}, {2, 0}, {3, 0}}
	gate := [][]float32{{1000, 0}, {0, 1000}}
	factors := [][]float32{{-1, -1}, {2, 2}}
	out := strategytest.OK(f.Run(context.Background(), tokens, gate, factors))
	for _, y := range out {
		fmt.Println(strategytest.OK(y.Local(context.Background(), 0)).Value())
	}
	// Output:
	// [[-1 0] [0 2] [-2 0] [-3 0]]
	// 0
}
