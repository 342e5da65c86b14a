package fit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// examples returns batches of a dataset, in another order in each pass.
func examples() input.Dataset {
	xs, ys := make([]float32, 64*8), make([]float32, 64)
	for i := range xs {
		xs[i] = float32(i%5) / 5
		ys[i/8] += xs[i]
	}
	x := strategytest.OK(input.NewTensor(xs, 64, 8))
	y := strategytest.OK(input.NewTensor(ys, 64, 1))
	return input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Shuffle(64,
		input.ShuffleOptions{Seed: 1}).Repeat(-1).Batch(16, true)
}

// A run is interrupted after 12 steps and then resumed.
func ExampleRun() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	s, done := strategytest.Example(2, 1)
	defer done()

	run := func(ctx context.Context, more ...fit.Hook) (fit.Result, error) {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(1))
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(1),
			train.Options{}))
		held := strategytest.OK(train.NewEvaluation(s, store, denseLoss(1), train.Options{}))
		return fit.Run(ctx, step, fit.Dataset(examples()), fit.Options{Steps: 20, Resume: true}, append(more,
			fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 10),
			fit.CSV(filepath.Join(dir, "losses.csv")),
			fit.KeepBest(filepath.Join(dir, "best"), "held/loss"),
			fit.Checkpoint(filepath.Join(dir, "checkpoints"), 100))...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := run(ctx, fit.Each(12, func(context.Context, *fit.State) error {
		cancel()
		return nil
	}))
	fmt.Println(errors.Is(err, context.Canceled))

	result, err := run(context.Background())
	fmt.Println(result.ResumedFrom, result.Step, err)
	for _, m := range result.Metrics {
		fmt.Println(m.Name)
	}
	// Output:
	// true
	// 12 20 <nil>
	// loss
	// held/loss
}

// A run stops when the held-out loss no longer falls. Its checkpoint contains the step and the
// settings.
func ExampleEarlyStop() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	s, done := strategytest.Example(2, 1)
	defer done()
	store := model.NewStore()
	// learns nothing
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0).Done(), denseLoss(1), train.Options{}))
	held := strategytest.OK(train.NewEvaluation(s, store, denseLoss(1), train.Options{}))
	result, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 100},
		fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 5),
		fit.EarlyStop("held/loss", 2),
		fit.Checkpoint(dir, 100))
	fmt.Println(result.Step, err)
	at, err := fit.LatestSnapshot(context.Background(), dir)
	fmt.Println(at.Step, err)
	// Output:
	// 15 <nil>
	// 15 <nil>
}
