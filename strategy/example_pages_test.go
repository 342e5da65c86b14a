package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A batch of eight, 0 to 3 on replica 0 and 4 to 7 on replica 1; then a partial batch of six, whose
// mean divides by 6.
func ExampleTPUStrategy_Reduce() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	x := strategytest.OK(strat.PerReplica(ctx, []any{[]float32{0, 1, 2, 3}, []float32{4, 5, 6, 7}}, logical.Annotation{}))
	fmt.Println(strategytest.Shared(strategytest.OK(strat.Reduce(ctx, strategy.Sum, x))))
	fmt.Println(strategytest.Shared(strategytest.OK(strat.Reduce(ctx, strategy.Mean, x))))
	fmt.Println(strategytest.Shared(strategytest.OK(strat.Reduce(ctx, strategy.Sum, x, 0))))

	partial := strategytest.OK(strat.PerReplica(ctx, []any{[]float32{0, 1, 2, 3}, []float32{4, 5}}, logical.Annotation{}))
	fmt.Println(strategytest.Shared(strategytest.OK(strat.Reduce(ctx, strategy.Mean, partial, 0))))
	// Output:
	// [4 6 8 10]
	// [2 3 4 5]
	// 28
	// 2.5
}

// A constant is the same on every replica; a distributed value has a component for each replica.
func ExampleFunction_Run() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	double := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{Name: "double"})
	fmt.Println(strategytest.Locals(strat, strategytest.OK(double.Run(ctx, float32(3)))[0]))

	replicas := strategytest.OK(eager.Of(strat).ValuesFromFunction(ctx, func(c eager.ValueContext) (any, error) {
		return int32(c.NumReplicasInSync), nil
	}))
	fmt.Println(strategytest.Locals(strat, strategytest.OK(double.Run(ctx, replicas))[0]))
	// Output:
	// [6 6]
	// [4 4]
}

// A metric: each replica counts separately in the step, and a read adds the counts.
func ExampleVariable_Read() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 1)
	defer done()

	seen := strategytest.OK(strat.NewVariable(ctx, int32(0), strategy.VariableOptions{
		Name: "examples_seen", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum,
	}))
	count := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		rc.AssignAdd(seen, graph.ReduceAllSum(in[0]))
		return in
	}, strategy.FunctionOptions{Name: "count", SplitBatch: true})
	for range 2 {
		strategytest.OK(count.Run(ctx, []int32{1, 2, 3, 4}))
	}
	fmt.Println(strategytest.Locals(strat, seen), strategytest.Shared(strategytest.OK(seen.Read(ctx))))
	// Output: [2 4 6 8] 20
}

// An addition whose result is assigned to logical device 0 of the replica's two.
func ExampleTPUStrategy_Function_assignToLogicalDevice() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 2)
	defer done()

	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.Assign(graph.Add(in[0], in[0]), 0)}
	}, strategy.FunctionOptions{Name: "add", SplitBatch: true})
	fmt.Println(strategytest.Locals(strat, strategytest.OK(f.Run(ctx, []float32{1, 2, 3, 4}))[0]))
	// Output: [[2] [4] [6] [8]]
}

// Images split over eight logical devices, two in width and four in height. Logits and labels are
// replicated for the loss. A split into another number of shards is an error.
func ExampleTPUStrategy_Function_splitToLogicalDevices() {
	ctx := context.Background()
	strat, done := strategytest.Example(1, 8)
	defer done()

	images := make([][][][]float32, 2)
	for b := range images {
		images[b] = make([][][]float32, 4)
		for w := range images[b] {
			images[b][w] = make([][]float32, 8)
			for h := range images[b][w] {
				images[b][w][h] = []float32{float32(b + 1)}
			}
		}
	}
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := logical.Split(in[0], 1, 2, 4, 1)
		output := logical.Replicate(graph.ReduceSum(x, 1, 2, 3))
		labels := logical.Replicate(in[1])
		return []*graph.Node{graph.ReduceAllMean(graph.Abs(graph.Sub(output, labels)))}
	}, strategy.FunctionOptions{Name: "loss", Arguments: []logical.Annotation{logical.SplitInto(1, 2, 4, 1)}})
	fmt.Println(strategytest.Locals(strat, strategytest.OK(f.Run(ctx, images, []float32{30, 60}))[0]))

	bad := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.Split(in[0], 2)}
	}, strategy.FunctionOptions{Name: "bad"})
	_, err := bad.Run(ctx, []float32{1, 2})
	fmt.Println(errors.As(err, new(*logical.Error)))
	// Output:
	// [3]
	// true
}

// trainEpochs trains for some epochs on a dataset of pairs of global batches. It returns the
// mean loss of each epoch.
func trainEpochs(ctx context.Context, strat *strategy.TPUStrategy, ds input.Dataset, epochs int) ([]float64, error) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step, err := train.New(strat, store, optimizer.Adam().LearningRate(0.05).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			hidden := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 8))
			output := layers.Dense(rc.Scope("output"), hidden, true, 1)
			return graph.ReduceAllMean(graph.Square(graph.Sub(output, in[1])))
		}, train.Options{})
	if err != nil {
		return nil, err
	}
	opts, err := feed.InputOptions(strat)
	if err != nil {
		return nil, err
	}
	var losses []float64
	for epoch := range epochs {
		opts.Epoch = uint64(epoch)
		distributed, err := input.Distribute(ds, opts)
		if err != nil {
			return nil, err
		}
		batches, err := feed.Iterate(ctx, strat, distributed)
		if err != nil {
			return nil, err
		}
		total, steps := 0.0, 0
		for {
			batch, err := batches.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(err, batches.Close())
			}
			pair := batch.([]any)
			loss, err := step.Run(ctx, pair[0], pair[1])
			if err != nil {
				return nil, errors.Join(err, batches.Close())
			}
			value, err := loss.Float64(ctx)
			if err != nil {
				return nil, errors.Join(err, batches.Close())
			}
			total, steps = total+value, steps+1
		}
		if err := batches.Close(); err != nil {
			return nil, err
		}
		losses = append(losses, total/float64(steps))
	}
	return losses, nil
}

// The loop learns y = 2x, on two replicas of two logical devices.
func Example_customTrainingLoop() {
	strat, done := strategytest.Example(2, 2)
	defer done()

	const rows = 32
	x, y := make([]float32, rows), make([]float32, rows)
	for i := range x {
		x[i] = float32(i)/rows - 0.5
		y[i] = 2 * x[i]
	}
	ds := input.FromSlices(input.Tuple(
		input.Leaf(strategytest.OK(input.NewTensor(x, rows, 1))), input.Leaf(strategytest.OK(input.NewTensor(y, rows, 1))))).
		Shuffle(rows, input.ShuffleOptions{Seed: 1}).Batch(8, true)
	losses := strategytest.OK(trainEpochs(context.Background(), strat, ds, 40))
	fmt.Println(len(losses), losses[39] < losses[0]/10)
	// Output: 40 true
}

// All replicas receive the sum and the mean of all replicas' values.
func ExampleReplicaContext_AllReduce() {
	ctx := context.Background()
	strat, done := strategytest.Example(4, 1)
	defer done()

	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
		return []*graph.Node{rc.AllReduce(strategy.Sum, id), rc.AllReduce(strategy.Mean, id)}
	}, strategy.FunctionOptions{Name: "all_reduce"})
	results := strategytest.OK(f.Run(ctx))
	fmt.Println(strategytest.Locals(strat, results[0]), strategytest.Locals(strat, results[1]))
	// Output: [6 6 6 6] [1.5 1.5 1.5 1.5]
}
