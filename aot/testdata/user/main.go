// Command user is a program as users of package aot write it: a step that it trains, or compiles.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func main() {
	flags := aot.AddFlags(flag.CommandLine)
	width := flag.Int("width", 64, "width of the hidden layer")
	depth := flag.Int("depth", 1, "number of hidden layers")
	none := flag.Bool("none", false, "build no step")
	panics := flag.Bool("panic", false, "panic in place of building a step")
	flag.Parse()
	opts := strategy.Options{Replicas: flags.Replicas, LogicalDevices: flags.Logical,
		Variables: logical.Rules{logical.Match(`/hidden.*weights`, logical.SplitOverAxes("", logical.LogicalAxis))}}
	if flags.Requested() {
		os.Exit(flags.Main(context.Background(), opts, func(strat *strategy.TPUStrategy) (aot.Step, []any, error) {
			if *panics {
				panic("as asked")
			}
			if *none {
				return nil, nil, nil
			}
			rows := 8 * strat.NumReplicasInSync()
			s, err := step(strat, *width, *depth)
			return s, []any{shapes.Make(dtypes.Float32, rows, 16), shapes.Make(dtypes.Float32, rows, 1)}, err
		}))
	}
	fmt.Println("it would run on", flags.Replicas, "x", flags.Logical)
}

func step(strat *strategy.TPUStrategy, width, depth int) (*train.Step, error) {
	return train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		hidden := in[0]
		for i := range depth {
			hidden = layers.Dense(rc.Scope(fmt.Sprintf("hidden%d", i)), hidden, true, width)
			hidden = logical.Split(graph.Tanh(hidden), 1, strat.NumLogicalDevices())
		}
		y := layers.Dense(rc.Scope("output"), hidden, true, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}, train.Options{Name: "user"})
}
