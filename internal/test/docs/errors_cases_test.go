package docs_test

import (
	"context"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// errors.md shows the bodies of these functions and the messages of the errors that they return.
// The strategy has 2 replicas of 4 logical devices.

func wrongShape(ctx context.Context, strat *strategy.TPUStrategy) error {
	step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MatMul(in[0], in[1])}
	}, strategy.FunctionOptions{Name: "project"})
	_, err := step.Run(ctx, [][]float32{{1, 2, 3}}, [][]float32{{1}, {2}})
	return err
}

func impossibleSplit(ctx context.Context, strat *strategy.TPUStrategy) error {
	step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.Split(in[0], 1, rc.Strategy().NumLogicalDevices())}
	}, strategy.FunctionOptions{Name: "forward"})
	_, err := step.Run(ctx, [][]float32{{1, 2, 3, 4, 5, 6}})
	return err
}

func unreachedRule(ctx context.Context, sys *system.System) error {
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2, LogicalDevices: 4, Variables: logical.Rules{
		logical.Match(`hiden/.*weights`, logical.SplitInto(1, 4)),
	}})
	if err != nil {
		return err
	}
	defer strat.Close()
	step, err := train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("hidden"), in[0], true, 8))
		}, train.Options{})
	if err != nil {
		return err
	}
	_, err = step.Run(ctx, [][]float32{{1}, {2}})
	return err
}

func raggedBatch(ctx context.Context, strat *strategy.TPUStrategy) error {
	step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
	}, strategy.FunctionOptions{Name: "add", SplitBatch: true})
	_, err := step.Run(ctx, [][]float32{{1}, {2}, {3}})
	return err
}

func unequalRows(ctx context.Context, strat *strategy.TPUStrategy) error {
	step, err := train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Sub(layers.Dense(rc.Scope("output"), in[0], true, 1), in[1]))
		}, train.Options{})
	if err != nil {
		return err
	}
	_, err = step.Run(ctx, [][]float32{{1}, {2}, {3}, {4}}, [][]float32{{5}, {6}})
	return err
}

func indivisibleBatch(strat *strategy.TPUStrategy) error {
	_, err := feed.DistributeFromFunction(strat, func(c input.Context) (input.Dataset, error) {
		rows, err := c.PerReplicaBatchSize(129)
		if err != nil {
			return input.Dataset{}, err
		}
		return input.Range(1000).Batch(rows, true), nil
	}, feed.DistributeOptions{})
	return err
}

func lossOfManyNumbers(ctx context.Context, strat *strategy.TPUStrategy) error {
	step, err := train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return layers.Dense(rc.Scope("hidden"), in[0], true, 8)
		}, train.Options{})
	if err != nil {
		return err
	}
	_, err = step.Run(ctx, [][]float32{{1}, {2}})
	return err
}

func tooManyReplicas(sys *system.System) error {
	_, err := strategy.New(sys, strategy.Options{Replicas: 3, LogicalDevices: 4})
	return err
}

func outOfMemory(ctx context.Context) error {
	slice, err := system.Describe(ctx, "v5e:2x4", system.DescribeOptions{})
	if err != nil {
		return err
	}
	defer slice.Close()
	strat, err := strategy.NewAheadOfTime(slice, strategy.Options{})
	if err != nil {
		return err
	}
	defer strat.Close()
	step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("wide"), in[0], false, 40<<10))
		}, train.Options{})
	if err != nil {
		return err
	}
	_, err = step.Compiled(ctx, shapes.Make(dtypes.Float32, 64, 40<<10))
	return err
}

func missingHost(ctx context.Context, opts system.Options) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	sys, err := system.Open(ctx, opts)
	if err != nil {
		return err
	}
	return sys.Close()
}

func missingPlugin(ctx context.Context) error {
	sys, err := system.Open(ctx, system.Options{Plugin: "/opt/libtpu.so"})
	if err != nil {
		return err
	}
	return sys.Close()
}

func noSuchSlice() error {
	_, err := tpu.ParseAccelerator("v5e:3x3")
	return err
}

func interruptedCompile(strat *strategy.TPUStrategy) error {
	ctx, cancel := context.WithCancel(context.Background())
	step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		cancel() // as a signal does, after the step was traced
		return []*graph.Node{graph.Exp(in[0])}
	}, strategy.FunctionOptions{Name: "forward"})
	_, err := step.Compiled(ctx, shapes.Make(dtypes.Float32, 8))
	return err
}

func compilerCrash(ctx context.Context, sys *system.System, command []string) error {
	compiler, err := worker.New(worker.Options{Command: command, Env: []string{"XLA_FLAGS=--no_such_flag"}})
	if err != nil {
		return err
	}
	strat, err := strategy.New(sys, strategy.Options{Compiler: compiler})
	if err != nil {
		return err
	}
	defer strat.Close()
	step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Exp(in[0])}
	}, strategy.FunctionOptions{Name: "forward"})
	_, err = step.Run(ctx, float32(1))
	return err
}

func bucket() error {
	_, err := checkpoint.OpenManager(context.Background(), "gs://bucket/run-1", checkpoint.ManagerOptions{})
	return err
}
