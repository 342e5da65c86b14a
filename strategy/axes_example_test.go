package strategy_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The 4 logical devices of a replica form a mesh of 2 x 2. The weights are split over one axis, so
// each half is on 2 devices. The product is split over the other axis.
func ExampleOptions_logicalAxes() {
	ctx := context.Background()
	sys := strategytest.OK(system.Open(ctx, system.Options{CPUDevices: 4}))
	defer sys.Close()
	strat := strategytest.OK(strategy.New(sys, strategy.Options{
		LogicalAxes: []sharding.Axis{{Name: "model", Size: 2}, {Name: "sequence", Size: 2}},
	}))
	defer strat.Close()

	weights := strategytest.OK(strat.Mirror(ctx, [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}, logical.SplitOverAxes("",
		"model")))
	for _, shard := range weights.Shards() {
		fmt.Printf("device %d has the columns from %d\n", shard.LogicalDevice, shard.Start[1])
	}
	product := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x, w := logical.SplitOver(in[0], "sequence", ""), in[1]
		return []*graph.Node{logical.SplitOver(graph.MatMul(x, w), "sequence", "model")}
	}, strategy.FunctionOptions{})
	results := strategytest.OK(product.Run(ctx, [][]float32{{1, 0}, {0, 1}}, weights))
	fmt.Println(strategytest.OK(results[0].Local(ctx, 0)).Value())
	// Output:
	// device 0 has the columns from 0
	// device 1 has the columns from 0
	// device 2 has the columns from 2
	// device 3 has the columns from 2
	// [[1 2 3 4] [5 6 7 8]]
}
