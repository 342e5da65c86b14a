package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// workload is the MLP's training step, and its runner on batches that stay on the devices.
type workload struct {
	program
	strat  *strategy.TPUStrategy
	step   *train.Step
	runner runner
}

func (r *rig) workload(ctx context.Context) (*workload, error) {
	m := &workload{program: mlp()}
	var err error
	if m.strat, err = r.strategy(ctx, strategy.Options{}); err != nil {
		return nil, err
	}
	if m.step, err = m.program.step(m.strat); err != nil {
		return nil, err
	}
	bound, err := m.step.Bind(ctx, m.x, m.y)
	if err != nil {
		return nil, err
	}
	r.later(func() { _ = bound.Close() })
	m.runner = launched(ctx, bound)
	return m, nil
}

// fed compares a step that receives a new batch each time with the same step on batches that stay
// on the devices.
func (m *workload) fed(ctx context.Context, args func() ([]any, error)) (row, error) {
	var loss *strategy.Mirrored
	short := untilReady(ctx)
	return repeat{turns: 600, limit: time.Minute, ops: 2}.time(timed(func() error {
		in, err := args()
		if err == nil {
			loss, err = m.step.Run(ctx, in...)
		}
		return err
	}, func() error { return loss.Ready(short) }), m.runner)
}

// mlpStep measures a training step on a batch that stays on the devices.
func mlpStep(ctx context.Context, r *rig) (row, error) {
	m, err := r.workload(ctx)
	if err != nil {
		return row{}, err
	}
	return repeat{turns: 400, limit: 5 * time.Second, ops: 20}.time(m.runner, nil)
}

// mlpStepFeed measures a step that copies its batch from the host. The baseline does not copy.
func mlpStepFeed(ctx context.Context, r *rig) (row, error) {
	m, err := r.workload(ctx)
	if err != nil {
		return row{}, err
	}
	args := []any{m.x, m.y}
	return m.fed(ctx, func() ([]any, error) { return args, nil })
}

// mlpStepPrefetch measures steps whose batches are built from a dataset and copied to the devices
// in advance by the input pipeline and a feed. The baseline is the same as in mlpStepFeed.
func mlpStepPrefetch(ctx context.Context, r *rig) (result row, err error) {
	m, err := r.workload(ctx)
	if err != nil {
		return row{}, err
	}
	rows := m.x.Shape().Dim(0)
	x, err := input.NewTensor(tensors.MustCopyFlatData[float32](m.x), rows, 784)
	if err != nil {
		return row{}, err
	}
	y, err := input.NewTensor(tensors.MustCopyFlatData[int32](m.y), rows, 1)
	if err != nil {
		return row{}, err
	}
	opts, err := feed.InputOptions(m.strat)
	if err != nil {
		return row{}, err
	}
	distributed, err := input.Distribute(input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Repeat(-1).Batch(rows,
		true), opts)
	if err != nil {
		return row{}, err
	}
	f, err := feed.New(ctx, m.strat, distributed, feed.Options{})
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return m.fed(ctx, func() ([]any, error) {
		batch, err := f.Next(ctx)
		if err != nil {
			return nil, err
		}
		return batch.Args(), nil
	})
}

// fitLoop measures an iteration of package fit's loop between two records. The step is very small,
// so that the overhead of the loop is visible. The baseline is a plain loop of the same steps.
func fitLoop(ctx context.Context, r *rig) (result row, err error) {
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return row{}, err
	}
	step, err := train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().WithDecay(false).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("output"), in[0], true, 1)))
		}, train.Options{})
	if err != nil {
		return row{}, err
	}
	x, err := strat.SplitBatch(ctx, tensors.FromFlatDataAndDimensions(make([]float32, 8*r.devices), r.devices, 8),
		logical.Annotation{}, false)
	if err != nil {
		return row{}, err
	}
	batch := []any{x}
	loss, err := step.Run(ctx, batch...)
	if err != nil {
		return row{}, err
	}
	var failed error
	next, stop := iter.Pull(func(turn func(struct{}) bool) {
		_, failed = fit.Run(ctx, step, fit.Batches(func(yield func([]any, error) bool) {
			for turn(struct{}{}) && yield(batch, nil) {
			}
		}), fit.Options{Every: 1 << 40})
	})
	defer func() { stop(); err = errors.Join(err, failed) }()
	short := untilReady(ctx)
	wait := func() error { return loss.Ready(short) }
	return repeat{turns: 400, limit: time.Minute, ops: 50}.time(timed(func() error {
		if _, ok := next(); !ok {
			return failed
		}
		return nil
	}, wait), timed(func() error { _, err := step.Run(ctx, batch...); return err }, wait))
}
