package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// mlp is the benchmark's model: 784-512-512-10, batch 256, plain SGD.
type mlp struct {
	strat *strategy.TPUStrategy
	store *model.Store
	step  *train.Step
	x, y  *tensors.Tensor
}

// mlpBatch are the rows that the benchmark's model is trained on.
func mlpBatch() (x, y *tensors.Tensor) {
	const rows = 256
	rng := rand.New(rand.NewPCG(1, 1))
	pixels, labels := make([]float32, rows*784), make([]int32, rows)
	for i := range pixels {
		pixels[i] = float32(rng.NormFloat64())
	}
	for i := range labels {
		labels[i] = int32(rng.IntN(10))
	}
	return tensors.FromFlatDataAndDimensions(pixels, rows, 784), tensors.FromFlatDataAndDimensions(labels, rows, 1)
}

func newMLP(strat *strategy.TPUStrategy) (m *mlp, err error) {
	m = &mlp{strat: strat, store: model.NewStore()}
	m.x, m.y = mlpBatch()
	m.store.SetParam(model.ParamInitialSeed, int64(1))
	m.step, err = train.New(strat, m.store, optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done(), mlpLoss, train.Options{})
	return m, err
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
	short := untilReady(ctx)
	m, err := newMLP(strat)
	if err != nil {
		return row{}, err
	}
	x, err := strat.SplitBatch(ctx, m.x, logical.Annotation{}, false)
	if err != nil {
		return row{}, err
	}
	y, err := strat.SplitBatch(ctx, m.y, logical.Annotation{}, false)
	if err != nil {
		return row{}, err
	}
	bound, err := m.step.Bind(ctx, x, y)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	got, err := measure(5*time.Second, 20, func() error { return bound.Launch(ctx) }, func() error { return bound.Results()[0].Ready(short) })
	return row{Us: got.us, Allocs: got.allocs}, err
}

// mlpStepFeed copies the batch from the host for each step. The floor is the step without that,
// measured in turn.
func mlpStepFeed(ctx context.Context, devices int) (row, error) {
	return againstResident(ctx, devices, func(m *mlp) (func() (*strategy.Mirrored, error), func() error, error) {
		return func() (*strategy.Mirrored, error) { return m.step.Run(ctx, m.x, m.y) }, func() error { return nil }, nil
	})
}

// mlpStepPrefetch reads the batches from a dataset, through the input pipeline and a feed that
// copies them ahead of the step. The floor is as in mlpStepFeed.
func mlpStepPrefetch(ctx context.Context, devices int) (row, error) {
	return againstResident(ctx, devices, func(m *mlp) (func() (*strategy.Mirrored, error), func() error, error) {
		f, err := m.feed(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func() (*strategy.Mirrored, error) {
			batch, err := f.Next(ctx)
			if err != nil {
				return nil, err
			}
			return m.step.Run(ctx, batch.Args()...)
		}, f.Close, nil
	})
}

// feed is an endless feed of the batch's rows, put together anew for each step.
func (m *mlp) feed(ctx context.Context) (*feed.Feed, error) {
	rows := m.x.Shape().Dim(0)
	x, err := input.NewTensor(tensors.MustCopyFlatData[float32](m.x), rows, 784)
	if err != nil {
		return nil, err
	}
	y, err := input.NewTensor(tensors.MustCopyFlatData[int32](m.y), rows, 1)
	if err != nil {
		return nil, err
	}
	ds := input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Repeat(-1).Batch(rows, true)
	opts, err := m.strat.InputOptions()
	if err != nil {
		return nil, err
	}
	distributed, err := input.Distribute(ds, opts)
	if err != nil {
		return nil, err
	}
	return feed.New(ctx, m.strat, distributed, feed.Options{})
}

// againstResident times a fed step and, in turn, the same step on data that stays on the devices.
func againstResident(ctx context.Context, devices int, fed func(*mlp) (run func() (*strategy.Mirrored, error), done func() error, err error)) (r row, err error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	m, err := newMLP(strat)
	if err != nil {
		return row{}, err
	}
	bound, err := m.step.Bind(ctx, m.x, m.y)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	run, stop, err := fed(m)
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var loss strategy.Value
	wait := func() error { return loss.Ready(untilReady(ctx)) }
	ways := [2]trained{
		{step: func() (err error) { loss, err = run(); return err }, wait: wait},
		{step: func() error {
			err := bound.Launch(ctx)
			loss = bound.Results()[0]
			return err
		}, wait: wait},
	}
	return trainedInTurn(ways, "mlp_step", 600, time.Hour)
}

// trainedInTurn measures two ways, two steps each, which change places in each turn, so that whatever
// else the machine does falls on both. The ratio is the median over the turns, of which the note tells
// the 95 % interval: a busy machine needs it to tell 2 % from nothing. It ends after the turns, or
// after the limit.
func trainedInTurn(ways [2]trained, against string, turns int, limit time.Duration) (r row, err error) {
	const steps = 2
	var times [2][]time.Duration
	var ratios []float64
	start := time.Now()
	for turn := 0; turn < rounds(turns) && (turn < 4 || time.Since(start) < limit); turn++ {
		for i := range 2 {
			way := (turn + i) % 2
			t, allocs, err := timed(steps, ways[way].step, ways[way].wait)
			if err != nil {
				return row{}, err
			}
			if way == 0 {
				r.Allocs = allocs
			}
			times[way] = append(times[way], t)
		}
		if turn > 0 { // the first is to warm up
			ratios = append(ratios, float64(times[0][turn])/float64(times[1][turn]))
		}
	}
	slices.Sort(ratios)
	n := len(ratios)
	beside := int(math.Ceil(0.98 * math.Sqrt(float64(n)))) // of the median, in ranks: the normal approximation
	r.Us, r.FloorUs, r.Ratio = round(median(times[0])), round(median(times[1])), round(ratios[n/2])
	r.Note = fmt.Sprintf("the floor is %s in turn; ratio %.3f, 95 %% between %.3f and %.3f", against,
		ratios[n/2], ratios[max(n/2-beside, 0)], ratios[min(n/2+beside, n-1)])
	return r, nil
}

// timed is the time and the allocations of one of n operations, ended by wait.
func timed(n int, op, wait func() error) (t time.Duration, allocs float64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range n {
		if err := op(); err != nil {
			return 0, 0, err
		}
	}
	if err := wait(); err != nil {
		return 0, 0, err
	}
	t = time.Since(start) / time.Duration(n)
	runtime.ReadMemStats(&after)
	return t, round(float64(after.Mallocs-before.Mallocs) / float64(n)), nil
}
