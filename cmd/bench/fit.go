package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// fitLoop is a step of package fit's loop between two records, on data that stays on the devices.
// The step is as small as a training step can be, so that the loop shows beside it. The floor is a
// bare loop of the same steps. Both take turns of 50 steps.
func fitLoop(ctx context.Context, devices int) (r row, err error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	short := untilReady(ctx)
	store := model.NewStore()
	step, err := train.New(strat, store, optimizer.StochasticGradientDescent().WithDecay(false).Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("output"), in[0], true, 1)))
	}, train.Options{})
	if err != nil {
		return row{}, err
	}
	x, err := strat.SplitBatch(ctx, tensors.FromFlatDataAndDimensions(make([]float32, 8*devices), devices, 8), logical.Annotation{}, false)
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
	ways := [2]func() error{
		func() error {
			if _, ok := next(); !ok {
				return failed
			}
			return nil
		},
		func() (err error) { _, err = step.Run(ctx, batch...); return err },
	}
	const steps = 50
	var times [2][]time.Duration
	var ratios []float64
	for turn := range rounds(400) {
		for i := range 2 {
			way := (turn + i) % 2
			t, allocs, err := timed(steps, ways[way], func() error { return loss.Ready(short) })
			if err != nil {
				return row{}, err
			}
			if way == 0 {
				r.Allocs = allocs
			}
			if turn > 0 { // the first is to warm up
				times[way] = append(times[way], t)
			}
		}
		if turn > 0 {
			ratios = append(ratios, float64(times[0][turn-1])/float64(times[1][turn-1]))
		}
	}
	slices.Sort(ratios)
	r.Us, r.FloorUs, r.Ratio = round(median(times[0])), round(median(times[1])), round(ratios[len(ratios)/2])
	r.Note = fmt.Sprintf("the floor is a bare loop of the same steps, in turn; ratio %.3f", ratios[len(ratios)/2])
	return r, nil
}
