package train_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// made is a step that the examples share, so that it is compiled once. It learns w of w*x in
// float16, with a loss scale, averages of w and the mean loss of all rows.
var made = sync.OnceValue(func() *train.Step {
	s, _ := strategytest.Example(2, 1)
	return strategytest.OK(train.New(s, model.NewStore(),
		optimizer.StochasticGradientDescent().WithLearningRate(0.25).WithDecay(false).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := graph.ConvertDType(rc.Scope().VariableWithValue("w", float32(0)).NodeValue(rc.Graph()), in[0].DType())
			return graph.ReduceAllMean(graph.Square(graph.Sub(graph.Mul(in[0], w), in[1])))
		}, train.Options{Precision: precision.MixedFloat16, Average: 0.5, Metrics: []train.Metric{train.MeanLoss()}}))
})

// Run does not wait for the devices; reading the loss does.
func ExampleStep_Run() {
	ctx := context.Background()
	loss, err := made().Run(ctx, []float32{1, 1}, []float32{0.5, 0.5}) // a row for each replica
	if err != nil {
		panic(err)
	}
	_, err = loss.Float64(ctx)
	fmt.Println(err)
	// Output: <nil>
}

// Metrics are accumulated on the devices until they are read.
func ExampleStep_Metrics() {
	ctx, step := context.Background(), made()
	if err := step.ResetMetrics(ctx); err != nil {
		panic(err)
	}
	for range 3 {
		_ = strategytest.OK(step.Run(ctx, []float32{1, 1}, []float32{0.5, 0.5}))
	}
	for _, m := range strategytest.OK(step.Metrics(ctx)) {
		fmt.Println(m.Name, "of", m.Weight, "rows")
	}
	// Output: loss of 6 rows
}

// In float16 the loss is scaled to preserve small gradients.
func ExampleStep_LossScale() {
	ctx, step := context.Background(), made()
	_ = strategytest.OK(step.Run(ctx, []float32{1, 1}, []float32{0.5, 0.5}))
	scaling := strategytest.OK(step.LossScale(ctx))
	fmt.Println(scaling.Scale, scaling.Skipped)
	// Output: 32768 0
}

// SwapAverages exchanges the variables and their averages; a second call restores the variables.
func ExampleStep_SwapAverages() {
	ctx, step := context.Background(), made()
	for range 2 { // the averages begin with the variables after the first step
		_ = strategytest.OK(step.Run(ctx, []float32{1, 1}, []float32{0.5, 0.5}))
	}
	w, _ := step.Strategy().Variables(step.Store()).Lookup("/w")
	before := strategytest.OK(w.Value(ctx)).Value().(float32)
	if err := step.SwapAverages(ctx); err != nil {
		panic(err)
	}
	average := strategytest.OK(w.Value(ctx)).Value().(float32)
	fmt.Println(average < before, step.SwapAverages(ctx))
	// Output: true <nil>
}

// The compiler reports properties of a step, here for two replicas with one row each.
func ExampleStep_Compiled() {
	compiled := strategytest.OK(made().Compiled(context.Background(), []float32{1, 1}, []float32{0.5, 0.5}))
	r := strategytest.OK(report.Of(compiled))
	fmt.Println(compiled.Name, r.Replicas, r.LogicalDevices, r.Parameters)
	// Output: train_step 2 1 1
}

// The batch stays on the devices, for a loop over resident data.
func ExampleStep_Bind() {
	ctx, step := context.Background(), made()
	bound, err := step.Bind(ctx, []float32{1, 1}, []float32{0.5, 0.5})
	if err != nil {
		panic(err)
	}
	defer bound.Close()
	for range 10 {
		err = bound.Launch(ctx)
	}
	fmt.Println(err)
	// Output: <nil>
}

// A function over the step's variables computes with their moving averages.
func ExampleAveraged() {
	ctx, step := context.Background(), made()
	_ = strategytest.OK(step.Run(ctx, []float32{1, 1}, []float32{0.5, 0.5}))
	f := step.Strategy().Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
		train.Averaged(rc, step.Name(), func() {
			w := rc.Scope().VariableWithValue("w", float32(0))
			out = []*graph.Node{graph.Mul(in[0], w.NodeValue(rc.Graph()))}
		})
		return out
	}, strategy.FunctionOptions{Store: step.Store()})
	defer f.Close()
	results := strategytest.OK(f.Run(ctx, float32(1)))
	y := strategytest.OK(results[0].Local(ctx, 0)).Value().(float32)
	fmt.Println(0 < y && y <= 2)
	// Output: true
}

// Close frees the program and the metrics. The variables remain in the store.
func ExampleStep_Close() {
	s, done := strategytest.Example(1, 1)
	defer done()
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), parity, train.Options{}))
	fmt.Println(step.Close())
	_, err := step.Run(context.Background(), []int64{1})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}
