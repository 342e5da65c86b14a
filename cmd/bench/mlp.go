package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"tpustrategy/logical"
	"tpustrategy/strategy"
)

// mlp is the benchmark's model: 784-512-512-10, batch 256, plain SGD.
type mlp struct {
	strat *strategy.TPUStrategy
	store *model.Store
	step  *strategy.TrainStep
	x, y  *tensors.Tensor
}

func newMLP(strat *strategy.TPUStrategy) *mlp {
	const rows = 256
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := make([]float32, rows*784), make([]int32, rows)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i] = int32(rng.IntN(10))
	}
	m := &mlp{strat: strat, store: model.NewStore(),
		x: tensors.FromFlatDataAndDimensions(x, rows, 784), y: tensors.FromFlatDataAndDimensions(y, rows, 1)}
	m.store.SetParam(model.ParamInitialSeed, int64(1))
	m.step = strat.TrainStep(m.store, optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done(), mlpLoss)
	return m
}

func mlpLoss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	h := in[0]
	for _, layer := range []string{"first", "second"} {
		h = layers.Dense(rc.Scope(layer), h, true, 512)
		h = graph.Max(h, graph.ZerosLike(h))
	}
	logits := layers.Dense(rc.Scope("output"), h, true, 10)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
}

// mlpStep is a training step on data that stays on the devices.
func mlpStep(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	m := newMLP(strat)
	x, err := strat.SplitBatch(ctx, m.x, logical.Annotation{})
	if err != nil {
		return row{}, err
	}
	y, err := strat.SplitBatch(ctx, m.y, logical.Annotation{})
	if err != nil {
		return row{}, err
	}
	bound, err := m.step.Bind(ctx, x, y)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	got, err := measure(5*time.Second, 20, func() error { return bound.Launch(ctx) }, func() error { return bound.Results()[0].Ready(ctx) })
	return row{Us: got.us, Allocs: got.allocs}, err
}

// mlpStepFeed copies the batch from the host for each step. The floor is the step
// without that, measured in turn.
func mlpStepFeed(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	m := newMLP(strat)
	bound, err := m.step.Bind(ctx, m.x, m.y)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	var fed, resident []time.Duration
	var allocs float64
	var l *strategy.Mirrored
	// Both take turns, a few steps each, and change places, so that whatever else
	// the machine does falls on both.
	for i := range 24 {
		for turn := range 2 {
			if turn == i%2 {
				got, err := measure(0, 10, func() (err error) { l, err = m.step.Run(ctx, m.x, m.y); return err },
					func() error { return l.Ready(ctx) })
				if err != nil {
					return row{}, err
				}
				fed, allocs = append(fed, time.Duration(got.us*1e3)), got.allocs
				continue
			}
			got, err := measure(0, 10, func() error { return bound.Launch(ctx) },
				func() error { return bound.Results()[0].Ready(ctx) })
			if err != nil {
				return row{}, err
			}
			resident = append(resident, time.Duration(got.us*1e3))
		}
	}
	return row{Us: round(median(fed)), Allocs: allocs, FloorUs: round(median(resident)), Note: "the floor is mlp_step in turn"}, nil
}
