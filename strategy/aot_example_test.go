package strategy_test

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The step is compiled for a slice of 16 chips that need not be here. libtpu has
// to be installed, and its variables set before it is loaded: see
// system.Describe.
func ExampleNewAheadOfTime() {
	ctx := context.Background()
	slice, err := system.Describe(ctx, "v5e:4x4", system.DescribeOptions{})
	if err != nil {
		panic(err)
	}
	defer slice.Close()
	strat, err := strategy.NewAheadOfTime(slice, strategy.Options{
		LogicalDevices: 4,
		Variables:      logical.Rules{logical.Match(`/hidden/.*weights`, logical.SplitInto(1, 4))},
	})
	if err != nil {
		panic(err)
	}
	defer strat.Close()
	step := strat.TrainStep(model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := graph.Tanh(logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 4096), 1, 4))
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	})
	// Shapes of the whole batch stand for its tensors.
	compiled, err := step.Compiled(ctx, shapes.Make(dtypes.Float32, 1024, 512), shapes.Make(dtypes.Float32, 1024, 1))
	if err != nil {
		panic(err) // a *strategy.MemoryError if it does not fit
	}
	report, err := compiled.Report()
	if err != nil {
		panic(err)
	}
	if err := report.WriteText(os.Stdout); err != nil {
		panic(err)
	}
}

// A compiled step is written to a file and run from it, without tracing or
// compiling anything.
func ExampleCompiled_Save() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	if err != nil {
		panic(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer strat.Close()
	sum := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Mul(in[0], id))}
	}, strategy.FunctionOptions{Name: "sum"})
	compiled, err := sum.Compiled(ctx, float32(7))
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer
	if err := compiled.Save(&file); err != nil {
		panic(err)
	}

	loaded, err := strat.LoadStep(ctx, &file, nil)
	if err != nil {
		panic(err)
	}
	results, err := loaded.Run(ctx, float32(10))
	if err != nil {
		panic(err)
	}
	value, err := results[0].Local(ctx, 3)
	if err != nil {
		panic(err)
	}
	fmt.Println(tensors.ToScalar[float32](value))
	// Output: 60
}
