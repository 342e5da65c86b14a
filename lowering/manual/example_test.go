//go:build cgo

package manual_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Each of four devices has two of eight numbers. It sends them to the next device and sums the
// numbers of all devices.
func ExampleRegion() {
	s, done := strategytest.Example(1, 4)
	defer done()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		cut := sharding.P("logical")
		return manual.Region(nil, []manual.Arg{{Node: in[0], Spec: cut}}, []sharding.Spec{cut, sharding.P()},
			func(in []*graph.Node) []*graph.Node {
				mine := in[0] // of shape [2]
				return []*graph.Node{manual.Shift(mine, 1), manual.AllReduce(mine, manual.Sum)}
			})
	}, strategy.FunctionOptions{})
	out := strategytest.OK(f.Run(context.Background(), []float32{1, 2, 3, 4, 5, 6, 7, 8}))
	for _, y := range out {
		fmt.Println(strategytest.OK(y.Local(context.Background(), 0)).Value())
	}
	// Output:
	// [7 8 1 2 3 4 5 6]
	// [16 20]
}
