package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// from-tensorflow.md and tensorflow-recipes.md show classifier and the bodies of the other
// functions.

// classifier is the model and its loss for the rows of one replica.
func classifier(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	pixels, labels := in[0], in[1]
	hidden := graph.Tanh(layers.Dense(rc.Scope("hidden"), pixels, true, 64))
	logits := layers.Dense(rc.Scope("output"), hidden, true, 10)
	train.Report(rc, "accuracy", train.Correct(logits, labels), nil)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{labels}, []*graph.Node{logits}))
}

func setUp(ctx context.Context, use func(*strategy.TPUStrategy) error) error {
	sys, err := system.Open(ctx, system.Options{CPUDevices: 8}) // on a TPU VM: system.Options{}
	if err != nil {
		return err
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
	if err != nil {
		return err
	}
	defer strat.Close()
	return use(strat)
}

func fitted(ctx context.Context, strat *strategy.TPUStrategy, trainSet, heldOut input.Dataset,
	folder string) (*model.Store, error) {
	store, metrics := model.NewStore(), []train.Metric{train.Reported("accuracy")}
	step, err := train.New(strat, store, optimizer.Adam().Done(), classifier, train.Options{Metrics: metrics})
	if err != nil {
		return nil, err
	}
	held, err := train.NewEvaluation(strat, store, classifier, train.Options{Metrics: metrics})
	if err != nil {
		return nil, err
	}

	batches := trainSet.Shuffle(1000, input.ShuffleOptions{}).Batch(64, true)
	result, err := fit.Run(ctx, step, fit.Dataset(batches), fit.Options{Epochs: 3, Resume: true},
		fit.Evaluate("held", held, fit.Dataset(heldOut.Batch(64, false)), 20),
		fit.Checkpoint(folder+"/checkpoints", 20),
		fit.EarlyStop("held/accuracy", 3, fit.BestOptions{Maximize: true}),
		fit.CSV(folder+"/history.csv"))
	if err != nil {
		return nil, err
	}
	fmt.Println(result.Step, result.Metrics)
	return store, nil
}

func checkpointed(ctx context.Context, strat *strategy.TPUStrategy, store *model.Store, step int64,
	folder string) error {
	group := checkpoint.StrategyGroup(strat, store) // all variables of the store and of the scope
	m, err := checkpoint.OpenManager(ctx, folder, checkpoint.ManagerOptions{Strategy: strat,
		Retention: checkpoint.Retention{Last: 3}})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Save(ctx, step, group, checkpoint.SaveOptions{}); err != nil { // the rest is saved in the background
		return err
	}
	if err := m.Wait(ctx); err != nil {
		return err
	}

	last, err := m.Latest(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil // a new run
	}
	if err != nil {
		return err
	}
	defer last.Close()
	return last.Restore(ctx, group, checkpoint.RestoreOptions{})
}

func evaluated(ctx context.Context, strat *strategy.TPUStrategy, held *train.Evaluation, heldOut input.Dataset) error {
	data, err := feed.FromDataset(ctx, strat, heldOut.Batch(64, false), feed.Options{})
	if err != nil {
		return err
	}
	defer data.Close()
	readings, err := held.Over(ctx, data.Args(ctx))
	if err != nil {
		return err
	}
	for _, r := range readings {
		fmt.Println(r.Name, r.Value)
	}
	return nil
}

func noisy(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
	x = layers.DropoutStatic(rc.Scope("dropout"), x, 0.1) // each replica has different masks
	return graph.Add(x, rc.Scope().RandomNormal(x.Graph(), x.Shape()))
}

func savedModel(ctx context.Context, strat *strategy.TPUStrategy, store *model.Store, path string) error {
	scores := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		hidden := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 64))
		return []*graph.Node{layers.Dense(rc.Scope("output"), hidden, true, 10)}
	}, strategy.FunctionOptions{Name: "scores", Store: store, SplitBatch: true})
	compiled, err := scores.Compiled(ctx, shapes.Make(dtypes.Float32, 64, 16))
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(stepfile.Save(ctx, file, compiled), file.Close())
}

func placed(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
	x = logical.Split(x, 1, rc.Strategy().NumLogicalDevices()) // the features over the logical devices
	x = graph.Tanh(x)                                          // each device computes its part
	x = logical.Replicate(x)                                   // whole on each again
	return logical.OnDevice(1, x, func(x *graph.Node) *graph.Node {
		return graph.Softmax(x, -1) // on logical device 1
	})
}
