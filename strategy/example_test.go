package strategy_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Each replica sees its own id; an all-reduce gives all of them the sum.
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

// A training step over 2 replicas of 2 logical devices. The variables of the
// hidden layer are split over the logical devices, and so is its activation.
func ExampleTPUStrategy_TrainStep() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2, LogicalDevices: 2, Variables: logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, 2)),
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step := strat.TrainStep(store, optimizer.Adam().LearningRate(0.05).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			hidden := logical.Split(graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 8)), 1, 2)
			return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), hidden, true, 1), in[1])))
		})
	x, y := [][]float32{{-1}, {-0.5}, {0.5}, {1}}, [][]float32{{-2}, {-1}, {1}, {2}}
	for range 200 {
		if _, err := step.Run(ctx, x, y); err != nil {
			log.Fatal(err)
		}
	}
	loss, err := step.Run(ctx, x, y)
	if err != nil {
		log.Fatal(err)
	}
	value, err := loss.Float64(ctx)
	if err != nil {
		log.Fatal(err)
	}
	weights, _ := strat.Variables(store).Lookup("/hidden/dense/weights")
	fmt.Println(value < 0.01, weights.Annotation(), weights.BytesPerDevice(), "bytes a device")
	// Output: true split(1, 2) 16 bytes a device
}
