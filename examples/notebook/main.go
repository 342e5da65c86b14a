// Command notebook contains the code of the cells of notebook.ipynb. A test generates it from the
// notebook.
package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/input/digits"
	"github.com/tpustrategy/tpustrategy/input/idx"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func logits(rc *strategy.ReplicaContext, images *graph.Node, keep remat.Policy) *graph.Node {
	x := precision.Compute(graph.DivScalar(graph.ConvertDType(images, dtypes.Float32), 255))
	x = graph.Reshape(x, x.Shape().Dimensions[0], -1)
	x = remat.Block(keep, x, func(x *graph.Node) *graph.Node {
		return activation.Relu(layers.Dense(rc.Scope("hidden"), x, true, 128))
	})
	return layers.Dense(rc.Scope("logits"), x, true, 10)
}

// train trains for 110 steps, which are 5 passes over the data, with the given flags. It returns
// the folder of the run.
func train(args ...string) string {
	f := trainer.AddFlags(flag.NewFlagSet("notebook", flag.ContinueOnError), trainer.Defaults{Steps: 110, Devices: 8})
	check(f.Parse(args, os.Stderr))
	training, test, err := idx.ReadTrainTest("", digits.IDX)
	check(err)
	columns := logical.Match("/hidden/.*weights", logical.SplitOverAxes("", logical.LogicalAxis))
	outcome, err := f.Train(context.Background(), trainer.Classifier{
		Logits:   func(rc *strategy.ReplicaContext, images *graph.Node) *graph.Node { return logits(rc, images, f.Remat) },
		Training: training, Test: test, Batch: 64, Variables: logical.Rules{columns},
	})
	check(err)
	fmt.Printf("%d replicas of %d logical devices: %s\n", outcome.Replicas, outcome.Logical, outcome)
	return outcome.Out
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// cells are the cells of the notebook that are run.
var cells = []func(){cell6, cell8, cell10}

func main() {
	for _, cell := range cells {
		cell()
	}
}

func cell6() {
	folder := train()
	table, err := os.Open(filepath.Join(folder, "losses.csv"))
	check(err)
	defer table.Close()
	rows, err := csv.NewReader(table).ReadAll()
	check(err)
	for _, row := range rows {
		fmt.Println(strings.Join(row[:3], "	"))
	}
}

func cell8() {
	train("-logical", "2")
}

func cell10() {
	mesh, err := sharding.ParseMesh("replica=4,logical=2")
	check(err)
	columns, err := sharding.ParseSpec("-,logical")
	check(err)
	check(sharding.Visualize(os.Stdout, mesh, columns, []int{64, 128}, sharding.VisualizeOptions{}))
}
