package fit_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// made contains a step and an evaluation that the examples share, so that they are compiled once.
var made = sync.OnceValues(func() (*train.Step, *train.Evaluation) {
	s, _ := strategytest.Example(2, 1)
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node { return denseLoss(1)(rc, in) }
	return strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), loss, train.Options{})),
		strategytest.OK(train.NewEvaluation(s, store, loss, train.Options{}))
})

// files prints the names in a folder.
func files(dir, pattern string) {
	for _, path := range strategytest.OK(filepath.Glob(filepath.Join(dir, pattern))) {
		fmt.Println(strategytest.OK(filepath.Rel(dir, path)))
	}
}

// Checkpoints of a run, and its position in the last one.
func ExampleCheckpoint() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, _ := made()
	_, err := fit.Run(ctx, step, fit.Dataset(examples()), fit.Options{Steps: 12}, fit.Checkpoint(dir, 5,
		fit.CheckpointOptions{Keep: 2}))
	files(dir, "step-*")
	at, _ := fit.LatestSnapshot(ctx, dir)
	fmt.Println(at.Step, err)
	// Output:
	// step-0000000010
	// step-0000000012
	// 12 <nil>
}

// A table with a row for each record: after the first step, each 10th step, and the last step.
func ExampleCSV() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, _ := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 20},
		fit.CSV(filepath.Join(dir, "losses.csv")))
	table := strategytest.OK(os.ReadFile(filepath.Join(dir, "losses.csv")))
	for row := range bytes.Lines(table) {
		fmt.Printf("%s\n", bytes.SplitN(row, []byte(","), 3)[0])
	}
	fmt.Println(err)
	// Output:
	// step
	// 1
	// 10
	// 20
	// <nil>
}

// A page with the learning curve, and event files for TensorBoard.
func ExampleCurve() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, held := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 20},
		fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 10),
		fit.Curve(filepath.Join(dir, "curve.html"), "loss", "held/loss"))
	files(dir, "*")
	fmt.Println(err)
	// Output:
	// curve.html
	// <nil>
}

// Event files have a folder for the training and a folder for each evaluation. TensorBoard draws
// both in one chart.
func ExampleEvents() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, held := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 20},
		fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 10), fit.Events(dir))
	files(dir, "*")
	fmt.Println(err)
	// Output:
	// held
	// train
	// <nil>
}

// An evaluation on held-out data after each 10th step.
func ExampleEvaluate() {
	step, held := made()
	result, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 20},
		fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 10))
	loss, measured := result.Value("held/loss")
	fmt.Println(loss > 0, measured, err)
	// Output: true true <nil>
}

// The checkpoint of the best evaluation is stored in addition to the regular checkpoints.
func ExampleKeepBest() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, held := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 5},
		fit.Evaluate("held", held, fit.Dataset(examples().Take(2)), 5), fit.KeepBest(dir, "held/loss"))
	files(dir, "step-*")
	fmt.Println(err)
	// Output:
	// step-0000000005
	// <nil>
}

// A custom function after each 4th step.
func ExampleEach() {
	step, _ := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 100},
		fit.Each(4, func(_ context.Context, s *fit.State) error {
			fmt.Println(s.Step(), "of", s.TotalSteps(), "in pass", s.Epoch())
			if s.Step() == 8 {
				s.Stop("it is enough")
			}
			return nil
		}))
	fmt.Println(err)
	// Output:
	// 4 of 100 in pass 1
	// 8 of 100 in pass 1
	// <nil>
}

// A run with an infinite or NaN loss ends and saves no checkpoint.
func ExampleTerminateOnNaN() {
	step, _ := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 5}, fit.TerminateOnNaN())
	fmt.Println(err)
	// Output: <nil>
}

// A run with a watchdog, which `tpustrategy watch` can observe, and which does not wait forever. A
// program with several processes also sets Exit to os.Exit.
func ExampleWatch() {
	dir := strategytest.OK(os.MkdirTemp("", "fit-"))
	defer os.RemoveAll(dir)
	step, _ := made()
	_, err := fit.Run(context.Background(), step, fit.Dataset(examples()), fit.Options{Steps: 5},
		fit.Watch(watchdog.Options{Dir: dir}))
	files(dir, "*")
	fmt.Println(err)
	// Output:
	// status
	// <nil>
}

func ExampleDataset() {
	step, _ := made()
	result, err := fit.Run(context.Background(), step, fit.Dataset(examples().Take(3)), fit.Options{Epochs: 2})
	fmt.Println(result.Step, "steps,", result.Epochs, "passes,", result.Rows, "rows", err)
	// Output: 6 steps, 2 passes, 96 rows <nil>
}

// An iterator yields the arguments of each step.
func ExampleBatches() {
	step, _ := made()
	result, err := fit.Run(context.Background(), step, fit.Batches(func(yield func([]any, error) bool) {
		x, y := [][]float32{{1, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0}}, [][]float32{{1}, {2}}
		for range 3 {
			if !yield([]any{x, y}, nil) {
				return
			}
		}
	}), fit.Options{})
	fmt.Println(result.Step, "steps,", result.Rows, "rows", err)
	// Output: 3 steps, 6 rows <nil>
}

// A dataset that the program has distributed over the replicas itself.
func ExampleDistributed() {
	step, _ := made()
	d, err := feed.DistributeAhead(step.Strategy(), examples().Take(3), feed.DistributeOptions{}, false)
	if err != nil {
		panic(err)
	}
	result, err := fit.Run(context.Background(), step, fit.Distributed(d), fit.Options{})
	fmt.Println(result.Step, err)
	// Output: 3 <nil>
}

// The rest of a feed. The program remains the owner of the feed.
func ExampleFeed() {
	ctx := context.Background()
	step, _ := made()
	f, err := feed.FromDataset(ctx, step.Strategy(), examples().Take(3), feed.Options{})
	if err != nil {
		panic(err)
	}
	defer f.Close()
	result, err := fit.Run(ctx, step, fit.Feed(f), fit.Options{})
	fmt.Println(result.Step, err)
	// Output: 3 <nil>
}
