package aot_test

import (
	"context"
	"flag"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// build returns the step and the shapes of a batch with 8 rows for each replica.
func build(strat *strategy.TPUStrategy) (aot.Step, []any, error) {
	step := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(graph.Square(in[0]))}
	}, strategy.FunctionOptions{Name: "squares", SplitBatch: true})
	return step, []any{shapes.Make(dtypes.Float32, 8*strat.NumReplicasInSync(), 3)}, nil
}

// The main function of a program that is called with "-replicas 4 -topology v5e:3x3". A real
// program adds the flags to flag.CommandLine and passes the code to os.Exit.
func ExampleFlags_Main() {
	set := flag.NewFlagSet("program", flag.ContinueOnError)
	flags := aot.AddFlags(set)
	if err := set.Parse([]string{"-replicas", "4", "-topology", "v5e:3x3"}); err != nil {
		fmt.Println(err)
	}
	opts := strategy.Options{Replicas: flags.Replicas, LogicalDevices: flags.Logical}
	if flags.Requested() {
		code := flags.Main(context.Background(), opts, build)
		fmt.Println("exit code", code) // no v5e slice has this shape; an error on standard error reports that
	}
	// Output: exit code 2
}

func ExampleFlags_Requested() {
	for _, line := range [][]string{{"-logical", "2"}, {"-logical", "2", "-topology", "v5e:2x4"}} {
		set := flag.NewFlagSet("program", flag.ContinueOnError)
		flags := aot.AddFlags(set)
		if err := set.Parse(line); err != nil {
			fmt.Println(err)
		}
		fmt.Println(flags.Requested(), flags.Logical)
	}
	// Output:
	// false 2
	// true 2
}
