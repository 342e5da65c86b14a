package nest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The arguments of the step are a map of tensors, a variable and a word, and the result is a map.
// The word is part of the signature: the step is traced for each word.
func ExampleNew() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()
	seen, err := strat.NewVariable(ctx, float32(0), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	if err != nil {
		log.Fatal(err)
	}

	f := nest.New(strat, func(rc *strategy.ReplicaContext, args []any) any {
		batch, seen, mode := args[0].(map[string]any), args[1].(*strategy.Variable), args[2].(string)
		fmt.Println("tracing for", mode)
		x, y := batch["x"].(*graph.Node), batch["y"].(*graph.Node)
		out := map[string]any{"mode": mode, "error": graph.ReduceAllSum(graph.Abs(graph.Sub(x, y)))}
		if mode == "train" {
			out["seen"] = rc.AssignAdd(seen, graph.Scalar(rc.Graph(), x.DType(), x.Shape().Dimensions[0]))
		}
		return out
	}, strategy.FunctionOptions{SplitBatch: true})

	batch := map[string]any{"x": []float32{1, 2, 3, 4}, "y": []float32{1, 1, 1, 1}}
	for _, mode := range []string{"train", "eval", "train"} {
		result, err := f.Run(ctx, batch, seen, mode)
		if err != nil {
			log.Fatal(err)
		}
		out := result.(map[string]any)
		errors, err := strat.LocalResults(ctx, out["error"].(*strategy.PerReplica))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out["mode"], errors[0].Value(), errors[1].Value())
	}
	total, err := seen.Value(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("seen", total.Value())
	// Output:
	// tracing for train
	// train 1 5
	// tracing for eval
	// eval 1 5
	// train 1 5
	// seen 8
}
