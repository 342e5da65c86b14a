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

// runStep runs f on one replica with 4 logical devices and prints the result. The input has the
// shape [2 4].
func runStep(f func(x *graph.Node) *graph.Node) {
	s, done := strategytest.Example(1, 4)
	defer done()
	results := strategytest.OK(s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	}, strategy.FunctionOptions{}).Run(context.Background(), [][]float32{{0, 1, 2, 3}, {4, 5, 6, 7}}))
	fmt.Println(strategytest.OK(results[0].Local(context.Background(), 0)).Value())
}

// Each device squares one row of one half of the columns. The sum is then replicated.
func ExampleSplit() {
	runStep(func(x *graph.Node) *graph.Node {
		squares := logical.Split(graph.Square(x), 2, 2)
		return logical.Replicate(graph.ReduceSum(squares, 0))
	})
	// Output: [16 26 40 58]
}

// A split over a named axis does not depend on the number of devices.
func ExampleSplitOver() {
	runStep(func(x *graph.Node) *graph.Node { return logical.SplitOver(graph.Square(x), "", logical.LogicalAxis) })
	// Output: [[0 1 4 9] [16 25 36 49]]
}

// Device 2 runs the region and sends the result to the other devices.
func ExampleOnDevice() {
	runStep(func(x *graph.Node) *graph.Node {
		return logical.OnDevice(2, x, func(x *graph.Node) *graph.Node {
			return graph.ReduceSum(graph.Sqrt(graph.Square(x)),
				1)
		})
	})
	// Output: [6 22]
}

// Device 3 computes the square, and the addition that only the square reads.
func ExampleAssign() {
	runStep(func(x *graph.Node) *graph.Node {
		return logical.Assign(graph.Square(graph.AddScalar(x, 1)), 3)
	})
	// Output: [[1 4 9 16] [25 36 49 64]]
}

// The sum of a split tensor is replicated on all devices.
func ExampleReplicate() {
	runStep(func(x *graph.Node) *graph.Node {
		return logical.Replicate(graph.ReduceAllSum(logical.Split(x, 1, 4)))
	})
	// Output: 28
}
