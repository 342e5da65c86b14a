package fit_test

import (
	"context"
	"fmt"
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

// TestProcessesEndTogether runs two processes, of which only the first writes files. Each cause
// that ends the run on one process ends it on both after the same step, and both resume from one
// checkpoint.
func TestProcessesEndTogether(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir := t.TempDir()
	var steps, resumed [2]int64
	// run runs both processes; change changes the options of one of them.
	run := func(change func(ctx context.Context, process int) (context.Context, []fit.Hook)) []error {
		return strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 2,
			LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			ctx, hooks := change(ctx, s.Process())
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(2),
				train.Options{Metrics: []train.Metric{train.MeanLoss()}}))
			held := strategytest.OK(train.NewEvaluation(s, store, denseLoss(2), train.Options{}))
			result, err := fit.Run(ctx, step, fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: 100, Every: 2,
				Resume: true}, append([]fit.Hook{
				fit.CSV(filepath.Join(dir, "losses.csv")), fit.Events(filepath.Join(dir, "events")),
				fit.Evaluate("held", held, fit.Dataset(dataset(t, 2)), 4),
				fit.KeepBest(filepath.Join(dir, "best"), "held/loss"),
				fit.EarlyStop("held/loss", 2, fit.BestOptions{MinDelta: 2}),
				fit.Checkpoint(filepath.Join(dir, "run"), 3)}, hooks...)...)
			steps[s.Process()], resumed[s.Process()] = result.Step, result.ResumedFrom
			return err
		})
	}
	at := func(step int64, f func(s *fit.State) error) fit.Hook {
		return fit.Hook{Name: "at", Record: func(_ context.Context, s *fit.State) error {
			if s.Step() == step {
				return f(s)
			}
			return nil
		}}
	}
	together := func(from, to int64) {
		t.Helper()
		assert.Equal(t, [2]int64{to, to}, steps)
		assert.Equal(t, [2]int64{from, from}, resumed)
		point, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "run"))
		require.NoError(t, err)
		assert.Equal(t, to, point.Step)
	}

	// The second process is interrupted, between two records.
	errs := run(func(ctx context.Context, process int) (context.Context, []fit.Hook) {
		if process == 0 {
			return ctx, nil
		}
		ctx, cancel := context.WithCancel(ctx)
		return ctx, []fit.Hook{at(2, func(*fit.State) error { cancel(); return nil })}
	})
	for i, err := range errs {
		require.ErrorIs(t, err, context.Canceled, "process %d", i)
	}
	together(0, 2)

	// A hook of the second process fails.
	mine := fmt.Errorf("mine")
	errs = run(func(ctx context.Context, process int) (context.Context, []fit.Hook) {
		return ctx, []fit.Hook{at(6, func(*fit.State) error { return map[int]error{1: mine}[process] })}
	})
	require.ErrorIs(t, errs[1], mine)
	require.ErrorContains(t, errs[0], "process 1: fit: hook at after step 6: mine")
	together(2, 6)

	// The second process stops the run.
	errs = run(func(ctx context.Context, process int) (context.Context, []fit.Hook) {
		return ctx, []fit.Hook{at(8, func(s *fit.State) error {
			if process == 1 {
				s.Stop("enough")
			}
			return nil
		})}
	})
	strategytest.NoErrors(t, errs)
	together(6, 8)

	// Both stop early because of the same numbers.
	errs = run(func(ctx context.Context, process int) (context.Context, []fit.Hook) { return ctx, nil })
	strategytest.NoErrors(t, errs)
	require.Equal(t, steps[0], steps[1])
	require.Less(t, steps[0], int64(100))

	// The losses equal the losses of one process.
	table, err := os.ReadFile(filepath.Join(dir, "losses.csv"))
	require.NoError(t, err)
	alone := map[int64]float64{}
	s := strategytest.New(t, 2, 1)
	_, err = fit.Run(context.Background(), dense(s, 2), fit.Dataset(dataset(t, 8).Repeat(-1)),
		fit.Options{Steps: steps[0]}, losses(alone))
	require.NoError(t, err)
	for i, row := range contents(t, string(table)) {
		assert.InDelta(t, alone[int64(row["step"])], row[fit.Loss], 1e-4, "row %d", i)
	}
}
