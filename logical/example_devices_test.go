//go:build cgo

package logical_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// step runs a function on one replica of 4 logical devices, on numbers [2 4], and prints its result.
func step(f func(x *graph.Node) *graph.Node) {
	s, done := strategytest.Example(1, 4)
	defer done()
	results := strategytest.OK(s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	}, strategy.FunctionOptions{}).Run(context.Background(), [][]float32{{0, 1, 2, 3}, {4, 5, 6, 7}}))
	fmt.Println(strategytest.OK(results[0].Local(context.Background(), 0)).Value())
}

// Each device computes half of the rows of half of the columns; the sum is whole on each of them.
func ExampleSplit() {
	step(func(x *graph.Node) *graph.Node {
		squares := logical.Split(graph.Square(x), 2, 2)
		return logical.Replicate(graph.ReduceSum(squares, 0))
	})
	// Output: [16 26 40 58]
}

// The same by the axis's name, which serves any number of devices.
func ExampleSplitOver() {
	step(func(x *graph.Node) *graph.Node { return logical.SplitOver(graph.Square(x), "", logical.AxisName) })
	// Output: [[0 1 4 9] [16 25 36 49]]
}

// Device 2 computes the region, and sends its result to the others.
func ExampleOn() {
	step(func(x *graph.Node) *graph.Node {
		return logical.On(2, x, func(x *graph.Node) *graph.Node { return graph.ReduceSum(graph.Sqrt(graph.Square(x)), 1) })
	})
	// Output: [6 22]
}

// Device 3 computes the square, and what only the square needs.
func ExampleAssign() {
	step(func(x *graph.Node) *graph.Node {
		return logical.Assign(graph.Square(graph.AddScalar(x, 1)), 3)
	})
	// Output: [[1 4 9 16] [25 36 49 64]]
}

// A sum of what two devices each hold half of, whole on both.
func ExampleReplicate() {
	step(func(x *graph.Node) *graph.Node {
		return logical.Replicate(graph.ReduceAllSum(logical.Split(x, 1, 4)))
	})
	// Output: 28
}
