//go:build cgo

package pipeline_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual/pipeline"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// There is one stage on each of two devices: the first adds 1, and the second adds 10.
func ExampleRun() {
	s, done := strategytest.Example(1, 2)
	defer done()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{pipeline.Run("logical", in[0], in[1:], func(x *graph.Node, w []*graph.Node) *graph.Node {
			return graph.Add(x, graph.Reshape(w[0])) // the device has one of the weights
		}, pipeline.Options{Microbatches: 4})}
	}, strategy.FunctionOptions{})
	out := strategytest.OK(f.Run(context.Background(), []float32{1, 2, 3, 4}, []float32{1, 10}))
	fmt.Println(strategytest.OK(out[0].Local(context.Background(), 0)).Value())
	// Output: [12 13 14 15]
}
