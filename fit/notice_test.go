package fit_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestANoticeBetweenRecordsStopsAllProcesses gives notices to one of two processes between distant
// records. Both save after the same step and resume, with the losses of a run without notices.
func TestANoticeBetweenRecordsStopsAllProcesses(t *testing.T) {
	sys := plugintest.System(t, 4)
	const steps = 40
	run := func(dir string, notice int64) (last [2]fit.Result, ends []error) {
		ends = strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 2,
			LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			own := make(chan interrupt.Notice, 1)
			ctx, stop := interrupt.Notify(ctx, interrupt.Options{Notices: own})
			defer stop()
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(2),
				train.Options{}))
			batches := fit.Batches(func(yield func([]any, error) bool) {
				for i := 0; ; i++ {
					if s.Process() == 1 && notice > 0 && int64(i) == notice {
						own <- interrupt.Notice{Reason: "the machine is being pre-empted"}
						<-ctx.Done()
					}
					x, y := strategytest.Batch(i)
					if !yield([]any{x, y}, nil) {
						return
					}
				}
			})
			var err error
			last[s.Process()], err = fit.Run(ctx, step, batches, fit.Options{Steps: steps, Every: 1000, Resume: true},
				fit.Checkpoint(dir, 0))
			return err
		})
		return last, ends
	}
	want, errs := run(filepath.Join(t.TempDir(), "whole"), 0)
	strategytest.NoErrors(t, errs)
	dir := filepath.Join(t.TempDir(), "run")
	from := int64(0)
	for _, at := range []int64{3, 11, 22} {
		got, errs := run(dir, at)
		for i, err := range errs {
			var stopped *interrupt.Error
			require.ErrorAs(t, err, &stopped, "process %d", i)
			assert.Equal(t, 75, interrupt.ExitCodeFor(err))
			assert.Equal(t, errkind.CancelledError, errkind.KindOf(err))
			assert.ErrorContains(t, err, "pre-empted")
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, got[0].Step, stopped.Step)
			assert.Equal(t, from, got[i].ResumedFrom)
		}
		assert.Equal(t, got[0].Step, got[1].Step)
		assert.Greater(t, got[0].Step, at-1)
		assert.Less(t, got[0].Step, int64(steps))
		point, err := fit.LatestSnapshot(t.Context(), dir)
		require.NoError(t, err)
		assert.Equal(t, got[0].Step, point.Step)
		from = point.Step
	}
	got, errs := run(dir, 0)
	strategytest.NoErrors(t, errs)
	for i := range got {
		assert.Equal(t, want[i].Metrics, got[i].Metrics, "to all digits")
	}
}

// TestANoticeDoesNotEndTheFeedOfOneProcess checks that the data continues until both processes have
// agreed to stop.
func TestANoticeDoesNotEndTheFeedOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	for i, err := range strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			own := make(chan interrupt.Notice, 1)
			ctx, stop := interrupt.Notify(ctx, interrupt.Options{Notices: own})
			defer stop()
			read := 0
			data := dataset(t, 8).Repeat(-1).Map(func(_ context.Context, e input.Element) (input.Element, error) {
				if read++; read == 40 && s.Process() == 1 { // by then the votes are several steps apart
					own <- interrupt.Notice{Reason: "quota"}
					<-ctx.Done()
				}
				return e, nil
			}, input.MapOptions{Spec: dataset(t, 8).Info().Spec})
			_, err := fit.Run(ctx, dense(s, 2), fit.Dataset(data), fit.Options{Steps: 100000, Every: 100000, Resume: true},
				fit.Checkpoint(dir, 0))
			return err
		}) {
		var stopped *interrupt.Error
		require.ErrorAs(t, err, &stopped, "process %d", i)
		assert.Greater(t, stopped.Step, int64(38))
		assert.Equal(t, dir, stopped.Directory)
	}
}

// TestTheCodeOfAnInterrupt checks that the code is 75 if there are checkpoints to resume from.
func TestTheCodeOfAnInterrupt(t *testing.T) {
	for _, saves := range []bool{false, true} {
		s := strategytest.New(t, 1, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		var hooks []fit.Hook
		if saves {
			hooks = append(hooks, fit.Checkpoint(t.TempDir(), 0))
		}
		hooks = append(hooks, fit.Each(2, func(context.Context, *fit.State) error {
			cancel(errkind.New(errkind.CancelledError, "enough"))
			return nil
		}))
		_, err := fit.Run(ctx, dense(s, 1), fit.Dataset(dataset(t, 8)), fit.Options{}, hooks...)
		assert.Equal(t, map[bool]int{false: 130, true: 75}[saves], interrupt.ExitCodeFor(err))
		assert.ErrorContains(t, err, "enough")
	}
}

// TestASaveThatDoesNotFitIsSaid checks the warnings about a save that takes longer than the grace
// period, and about a save that begins with less time left than the last one took.
func TestASaveThatDoesNotFitIsSaid(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	own := make(chan interrupt.Notice, 1)
	ctx, stop := interrupt.Notify(t.Context(), interrupt.Options{Notices: own, Grace: time.Nanosecond})
	defer stop()
	var said bytes.Buffer
	_, err := fit.Run(ctx, dense(s, 1), fit.Dataset(dataset(t, 8)),
		fit.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))},
		fit.Checkpoint(t.TempDir(), 3), fit.Each(4, func(ctx context.Context, _ *fit.State) error {
			own <- interrupt.Notice{Reason: "quota", Deadline: time.Now().Add(time.Microsecond)}
			<-ctx.Done()
			return nil
		}))
	require.Error(t, err)
	assert.Contains(t, said.String(), "a save takes longer than the grace period")
	assert.Equal(t, 1, bytes.Count(said.Bytes(), []byte("a save takes longer")), "once")
	assert.Contains(t, said.String(), "may not be complete before the process is ended")
	assert.Contains(t, said.String(), `reason=quota`)
	assert.Contains(t, said.String(), `"last checkpoint"=3`)
}

// TestANoticeBeforeTheFirstStepLeavesNobodyWaiting interrupts one of two processes before the run,
// while its hooks begin, and while the step is compiled.
func TestANoticeBeforeTheFirstStepLeavesNobodyWaiting(t *testing.T) {
	sys := plugintest.System(t, 2)
	for when, taken := range map[string]int64{"before": 0, "beginning": 0, "compiling": 1} {
		t.Run(when, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if when == "before" {
				cancel()
			}
			opts := strategy.Options{Replicas: 2}
			if when == "compiling" {
				opts.Phases = func(phase.Phase) { cancel() }
			}
			dir := t.TempDir()
			for i, err := range strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, opts, func(own context.Context,
				s *strategy.TPUStrategy) error {
				hooks := []fit.Hook{fit.Checkpoint(dir, 0), {Name: "begin", Begin: func(context.Context, *fit.State) error {
					if when == "beginning" && s.Process() == 1 {
						cancel()
					}
					return nil
				}}}
				if s.Process() == 1 {
					own = ctx
				}
				_, err := fit.Run(own, dense(s, 2), fit.Dataset(dataset(t, 8)), fit.Options{Resume: true}, hooks...)
				return err
			}) {
				var stopped *interrupt.Error
				require.ErrorAs(t, err, &stopped, "process %d", i)
				assert.Equal(t, taken, stopped.Step, "process %d", i)
				assert.Equal(t, map[int64]int{0: 130, 1: 75}[taken], interrupt.ExitCodeFor(err),
					"a notice without a deadline, before there is anything to save, asks for no other start")
			}
		})
	}
}
