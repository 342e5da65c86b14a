package stepfile_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A compiled step is written to a file and run from the file, without tracing or compilation.
func ExampleSave() {
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
	if err := stepfile.Save(ctx, &file, compiled); err != nil {
		panic(err)
	}

	loaded, err := stepfile.Load(ctx, strat, &file, nil)
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

// A training step is saved where it is compiled. Where it is loaded, it trains the model of a
// store.
func ExampleLoadTrain() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		panic(err)
	}
	defer sys.Close()
	compiling, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		panic(err)
	}
	store := model.NewStore()
	step, err := train.New(compiling, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("model"), in[0], true, 1)))
	}, train.Options{})
	if err != nil {
		panic(err)
	}
	compiled, err := step.Compiled(ctx, shapes.Make(dtypes.Float32, 4, 3))
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer
	if err := stepfile.Save(ctx, &file, compiled); err != nil {
		panic(err)
	}
	// Copy the initial values of the model's variables into the store. A checkpoint has them as
	// well.
	if err := compiling.Variables(store).Pull(ctx); err != nil {
		panic(err)
	}
	if err := compiling.Close(); err != nil {
		panic(err)
	}

	training, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer training.Close()
	loaded, err := stepfile.LoadTrain(ctx, training, &file, store)
	if err != nil {
		panic(err)
	}
	loss, err := loaded.Run(ctx, [][]float32{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}})
	if err != nil {
		panic(err)
	}
	value, err := loss.Float64(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(value)
	// Output: 0
}
