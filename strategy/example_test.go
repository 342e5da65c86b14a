package strategy_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Each replica reads its own id; an all-reduce returns the sum on all replicas.
func Example() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
		mine := graph.Add(in[0], id)
		return []*graph.Node{mine, rc.AllReduce(strategy.Sum, mine)}
	}, strategy.FunctionOptions{Name: "three_plus_id"})
	results, err := f.Run(ctx, float32(3))
	if err != nil {
		log.Fatal(err)
	}
	for _, result := range results {
		locals, err := strat.LocalResults(ctx, result)
		if err != nil {
			log.Fatal(err)
		}
		var values []any
		for _, local := range locals {
			values = append(values, local.Value())
		}
		fmt.Println(values...)
	}
	// Output:
	// 3 4 5 6
	// 18 18 18 18
}
