package fit_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestAResumedRunWithoutStepsEvaluates resumes runs that have no step left, on another mesh than
// the first run. Each reports the reason and measures the restored model.
func TestAResumedRunWithoutStepsEvaluates(t *testing.T) {
	for name, c := range map[string]struct {
		options fit.Options
		hooks   func() []fit.Hook
		reason  string
	}{
		"all steps were taken": {options: fit.Options{Steps: 7},
			reason: "the checkpoint of step 7 is complete: the run has 7 steps"},
		"the data ended": {options: fit.Options{Epochs: 2}, reason: "the checkpoint of step 10 is the end of the data"},
		"an early stop": {options: fit.Options{Steps: 100}, reason: "held/loss has not become better since step",
			hooks: func() []fit.Hook {
				return []fit.Hook{fit.EarlyStop("held/loss", 2, fit.BestOptions{MinDelta: 0.9})}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			calls := 0
			var said bytes.Buffer
			run := func(replicas, logicalDevices int) fit.Result {
				step, held := measured(strategytest.New(t, replicas, logicalDevices))
				options := c.options
				options.Every, options.Resume, options.Logger = 2, true, slog.New(slog.NewTextHandler(&said, nil))
				data := dataset(t, 5)
				if options.Steps > 0 {
					data = data.Repeat(-1)
				}
				var more []fit.Hook
				if c.hooks != nil {
					more = c.hooks()
				}
				result, err := fit.Run(t.Context(), step, fit.Dataset(data), options, append(more,
					fit.Evaluate("held", held, fit.Dataset(dataset(t, 2)), 5),
					fit.CSV(filepath.Join(dir, "losses.csv")), fit.KeepBest(filepath.Join(dir, "best"), "held/loss"),
					fit.Each(1, func(context.Context, *fit.State) error { calls++; return nil }),
					fit.Checkpoint(filepath.Join(dir, "run"), 0))...)
				require.NoError(t, err)
				return result
			}
			first := run(2, 1)
			table, err := os.ReadFile(filepath.Join(dir, "losses.csv"))
			require.NoError(t, err)
			require.NotContains(t, said.String(), "no steps left")
			took := calls

			again := run(1, 2)
			assert.Zero(t, again.StepsRun)
			assert.Equal(t, first.Step, again.Step)
			assert.Contains(t, again.StopReason, c.reason)
			assert.Contains(t, said.String(), "no steps left")
			assert.Contains(t, said.String(), c.reason)
			assert.Equal(t, took, calls, "functions of Each belong to steps")
			for _, metric := range []string{fit.Loss, "mean_loss", "held/loss"} {
				want, ok := first.Value(metric)
				require.True(t, ok)
				got, ok := again.Value(metric)
				require.True(t, ok, "%s in %v", metric, again.Metrics)
				if metric != "held/loss" {
					assert.Equal(t, want, got, metric)
				} else if first.Step%5 == 0 { // the first run evaluated the last step
					assert.InEpsilon(t, want, got, 1e-5)
				}
			}
			assert.Equal(t, fit.Loss, again.Metrics[0].Name)
			after, err := os.ReadFile(filepath.Join(dir, "losses.csv"))
			require.NoError(t, err)
			assert.Equal(t, string(table), string(after))
			third := run(2, 1)
			assert.Equal(t, again.Metrics[0], third.Metrics[0])
		})
	}
}

// TestAResumedRunBetweenEvaluationsEvaluates resumes a run that ends before the next evaluation is due.
func TestAResumedRunBetweenEvaluationsEvaluates(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	run := func(steps int64) fit.Result {
		step, held := measured(strategytest.New(t, 1, 1))
		evaluate := fit.Evaluate("held", held, fit.Dataset(dataset(t, 2)), 5)
		measure := evaluate.Measure
		evaluate.Measure = func(ctx context.Context, s *fit.State) error { calls++; return measure(ctx, s) }
		return strategytest.OK(fit.Run(t.Context(), step, fit.Dataset(dataset(t, 5).Repeat(-1)), fit.Options{Steps: steps,
			Resume: true},
			evaluate, fit.Checkpoint(filepath.Join(dir, "run"), 0)))
	}
	for _, c := range []struct{ steps, calls int64 }{{3, 0}, {4, 1}, {6, 2}, {10, 3}, {12, 4}} {
		result := run(c.steps)
		_, evaluated := result.Value("held/loss")
		assert.Equal(t, c.steps > 3, evaluated, "a resumed run to step %d", c.steps)
		assert.EqualValues(t, c.calls, calls, "a run to step %d", c.steps)
		assert.Empty(t, result.StopReason)
	}
}

// TestProcessesEvaluateTogetherWithoutSteps resumes a run of two processes without a step left.
func TestProcessesEvaluateTogetherWithoutSteps(t *testing.T) {
	sys, dir := plugintest.System(t, 4), t.TempDir()
	for life := range 2 {
		var results [2]fit.Result
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 2,
			LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) (err error) {
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(2),
				train.Options{}))
			held := strategytest.OK(train.NewEvaluation(s, store, denseLoss(2), train.Options{}))
			results[s.Process()], err = fit.Run(ctx, step, fit.Dataset(dataset(t, 8)), fit.Options{Steps: 5, Resume: true},
				fit.Evaluate("held", held, fit.Dataset(dataset(t, 2)), 100), fit.Checkpoint(dir, 0))
			return err
		}))
		for process, r := range results {
			_, evaluated := r.Value("held/loss")
			assert.Equal(t, life == 1, evaluated, "process %d", process)
			assert.Equal(t, int64(5), r.Step)
		}
		assert.Equal(t, results[0].Metrics, results[1].Metrics)
	}
}
