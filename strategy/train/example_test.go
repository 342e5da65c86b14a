package train_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A training step runs on 2 replicas with 2 logical devices each. The variables of the hidden layer
// and its activation are sharded over the logical devices.
func ExampleNew() {
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
	step, err := train.New(strat, store, optimizer.Adam().LearningRate(0.05).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			hidden := logical.Split(graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 8)), 1, 2)
			return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), hidden, true, 1), in[1])))
		}, train.Options{})
	if err != nil {
		log.Fatal(err)
	}
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
	// Output: true 1,2 16 bytes a device
}

// A batch with a number that is not finite changes no variable and is counted.
func ExampleStep_NonFinite() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("model"), in[0], true, 1)))
	}, train.Options{NonFinite: train.Skip})
	if err != nil {
		log.Fatal(err)
	}
	for _, batch := range [][][]float32{{{1}, {2}}, {{float32(math.NaN())}, {4}}, {{5}, {6}}} {
		if _, err := step.Run(ctx, batch); err != nil {
			log.Fatal(err)
		}
	}
	counts, err := step.NonFinite(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d steps were skipped, the last of them step %d: %s\n", counts.Skipped, counts.Steps, counts.Last,
		counts.What)
	// Output: 1 of 3 steps were skipped, the last of them step 2: the loss
}

// Three steps run in one launch, as a loop on the devices.
func ExampleStep_RunSteps() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	store := model.NewStore()
	step, err := train.New(strat, store, optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(1).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := rc.Scope().VariableWithValue("w", float32(10))
			return graph.ReduceAllMean(graph.Mul(in[0], w.NodeValue(rc.Graph())))
		}, train.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := step.RunSteps(ctx, []any{[]float32{1, 3}}, []any{[]float32{1, 1}}, []any{[]float32{2, 2}}); err != nil {
		log.Fatal(err)
	}
	w, _ := strat.Variables(store).Lookup("/w")
	value, err := w.Value(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(value.Value())
	// Output: 5
}

// The replicas shard the variables and the optimizer's state: each of 4 replicas has a quarter.
// Reads return the whole variable.
func ExampleNew_shardedState() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	rule := logical.MatchState("", logical.ShardParameters)
	rule.MinElements = 16 // the model is small
	strat, err := strategy.New(sys, strategy.Options{Variables: logical.Rules{rule}})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()
	store := model.NewStore()
	step, err := train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("model"), in[0], true, 8)))
	}, train.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := step.Run(ctx, [][]float32{{1, 2}, {3, 4}, {5, 6}, {7, 8}}); err != nil {
		log.Fatal(err)
	}
	for _, path := range []string{"/model/dense/weights", "/AdamOptimizer/model/dense/weights_1st_moment",
		"/model/dense/biases"} {
		v, _ := strat.Variables(store).Lookup(path)
		value, err := v.Value(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(value.Shape(), "takes", v.BytesPerDevice(), "bytes a device")
	}
	// Output:
	// (Float32)[2, 8] takes 16 bytes a device
	// (Float32)[2, 8] takes 16 bytes a device
	// (Float32)[8] takes 32 bytes a device
}

// A custom metric of the training step: the mean error over all rows since the last read.
func ExampleReport() {
	s, done := strategytest.Example(2, 1)
	defer done()
	step := strategytest.OK(train.New(s, model.NewStore(),
		optimizer.StochasticGradientDescent().WithLearningRate(0).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := rc.Scope().VariableWithValue("w", float32(3))
			off := graph.Abs(graph.Sub(graph.Mul(in[0], w.NodeValue(rc.Graph())), in[1]))
			train.Report(rc, "off", off, nil)
			return graph.ReduceAllMean(graph.Square(off))
		}, train.Options{Metrics: []train.Metric{train.Reported("off")}}))
	for _, y := range []float32{2, 4} {
		_ = strategytest.OK(step.Run(context.Background(), []float32{1, 1}, []float32{y, y + 2}))
	}
	for _, m := range strategytest.OK(step.Metrics(context.Background())) {
		fmt.Println(m.Name, m.Value, m.Weight)
	}
	// Output: off 1.5 4
}
