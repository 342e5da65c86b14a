package fit_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// quick returns options with which a wait of a second is late.
func quick(place string) watchdog.Options {
	return watchdog.Options{Dir: place, MinTimeout: time.Second, CancelDelay: 500 * time.Millisecond}
}

// blocking returns batches whose iterator waits for release at a step of one process.
func blocking(at int, release <-chan struct{}) fit.Data {
	return fit.Batches(func(yield func([]any, error) bool) {
		for i := 0; ; i++ {
			x, y := strategytest.Batch(i % 4)
			if i == at {
				<-release
			}
			if !yield([]any{x, y}, nil) {
				return
			}
		}
	})
}

// TestARunThatDoesNotGoOnEndsOnAllProcesses blocks the input of one of four processes in a call
// that cannot be canceled. The others name the process and end with an error; the blocked process
// exits.
func TestARunThatDoesNotGoOnEndsOnAllProcesses(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir := t.TempDir()
	release := make(chan struct{})
	var mu sync.Mutex
	exits, reports := map[int]int{}, make([][]watchdog.Report, 4)
	started := time.Now()
	errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4, Patience: 30 * time.Second},
		strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			o := quick(filepath.Join(dir, "run"))
			o.Exit = func(code int) {
				mu.Lock()
				exits[s.Process()] = code
				mu.Unlock()
				close(release) // simulates the end of the process
			}
			o.OnReport = func(r watchdog.Report) {
				mu.Lock()
				reports[s.Process()] = append(reports[s.Process()], r)
				mu.Unlock()
			}
			at := -1
			if s.Process() == 2 {
				at = 30
			}
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
				denseLoss(1), train.Options{}))
			_, err := fit.Run(ctx, step, blocking(at, release), fit.Options{Steps: 100, Every: 5}, fit.Watch(o),
				fit.Checkpoint(filepath.Join(dir, "checkpoints"), 10))
			return err
		})
	t.Logf("%v", time.Since(started))
	assert.Equal(t, map[int]int{2: watchdog.ExitCode}, exits)
	for i, err := range errs {
		var stuck *watchdog.StuckError
		if assert.ErrorAs(t, err, &stuck, "process %d", i) {
			assert.Equal(t, 2, stuck.Findings[0].Host, "process %d: %v", i, err)
			assert.Equal(t, watchdog.InInput, stuck.Findings[0].Cause)
			assert.Equal(t, watchdog.ExitCode, interrupt.ExitCodeFor(err))
			assert.Contains(t, stuck.Goroutines, "fit.Run")
		}
		if assert.NotEmpty(t, reports[i], "process %d", i) {
			assert.Equal(t, 2, reports[i][0].Findings[0].Host)
			t.Log(reports[i][0].Findings[0], "here", reports[i][0].Activity)
		}
	}
	point, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "checkpoints"))
	require.NoError(t, err)
	assert.Equal(t, int64(30), point.Step, "nobody saved alone")
	board, err := watchdog.OpenRecordStore(t.Context(), filepath.Join(dir, "run"))
	require.NoError(t, err)
	all, unreadable, err := board.ReadAll(t.Context(), 0)
	require.NoError(t, err)
	assert.Empty(t, unreadable)
	require.Len(t, all, 4)
	for _, r := range all {
		assert.Equal(t, watchdog.Ended, r.State)
		assert.Equal(t, int64(30), r.Checkpoint)
		assert.Contains(t, r.Error, "host 2")
	}
}

// TestAWaitThatItsContextEnds uses a single process. A hook that waits for its context ends with
// the error of the watchdog. An input that waits in the same way leaves a checkpoint.
func TestAWaitThatItsContextEnds(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	var stuck *watchdog.StuckError
	o := quick("")
	o.MinTimeout, o.FirstTimeout = 100*time.Millisecond, 300*time.Millisecond
	_, err := fit.Run(t.Context(), dense(s, 2), fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: 30, Every: 5},
		fit.Watch(o),
		fit.Each(10, func(ctx context.Context, _ *fit.State) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, watchdog.InHook, stuck.Findings[0].Cause)
	assert.Equal(t, int64(10), stuck.Step)
	assert.ErrorContains(t, err, `in the hook "each" for`)

	_, err = fit.Run(t.Context(), dense(s, 2), fit.Dataset(dataset(t, 8)), fit.Options{}, fit.Watch(o), fit.Watch(o))
	assert.ErrorContains(t, err, "two Watch hooks")
	o.MinTimeout = -1
	_, err = fit.Run(t.Context(), dense(s, 2), fit.Dataset(dataset(t, 8)), fit.Options{}, fit.Watch(o))
	assert.ErrorContains(t, err, "watchdog: option MinTimeout")
}

// TestARunThatGoesOnIsLeftAlone checks that a run with evaluations and saves has no reports.
func TestARunThatGoesOnIsLeftAlone(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	dir := t.TempDir()
	o := watchdog.Options{Dir: dir, OnReport: func(r watchdog.Report) { t.Errorf("%v", r.Findings) }}
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(2), train.Options{}))
	_, err := fit.Run(t.Context(), step, fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: 40, Every: 5},
		fit.Watch(o),
		fit.Evaluate("held", strategytest.OK(train.NewEvaluation(s, store, denseLoss(2), train.Options{})),
			fit.Dataset(dataset(t, 2)), 10), fit.Checkpoint(filepath.Join(dir, "checkpoints"), 10))
	require.NoError(t, err)
	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	all, _, err := board.ReadAll(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, all, 1)
	r := all[0]
	assert.Equal(t, []any{watchdog.Ended, int64(40), int64(40), int64(40), int64(40), ""}, []any{r.State, r.Step, r.Steps,
		r.LossStep, r.Checkpoint, r.Error})
	assert.Positive(t, float64(*r.Loss))
}
