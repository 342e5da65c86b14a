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
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/replay"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestAReplayEndsARunBeforeItSaves flips a bit of a variable on one device after step 12. The run
// replays every 4th step and saves after every 10th step and at its end. The error names the
// device, and step 10 is the last saved step. Without the flipped bit the losses equal the losses
// of a run without replays.
func TestAReplayEndsARunBeforeItSaves(t *testing.T) {
	dir := t.TempDir()
	run := func(place string, at int64, hooks ...fit.Hook) ([]float64, error) {
		s := strategytest.New(t, 4, 1)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			denseLoss(1), train.Options{}))
		defer step.Close()
		var losses []float64
		hooks = append(hooks, fit.Checkpoint(filepath.Join(dir, place), 10),
			fit.Each(1, func(ctx context.Context, st *fit.State) error {
				loss, _ := st.Value(fit.Loss)
				losses = append(losses, loss)
				if st.Step() != at {
					return nil
				}
				return turnBit(ctx, s.Variables(step.Store()).All()[0], 2)
			}))
		_, err := fit.Run(t.Context(), step, blocking(-1, nil), fit.Options{Steps: 24, Every: 1}, hooks...)
		return losses, err
	}
	_, err := run("bad", 12, fit.Replay(4))
	var e *replay.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, int64(16), e.Step)
	require.Len(t, e.Devices, 1)
	assert.Contains(t, e.Devices[0], "replica 2, logical device 0")
	assert.Equal(t, 69, interrupt.ExitCodeFor(err))
	saved, _ := filepath.Glob(filepath.Join(dir, "bad", "step-*"))
	assert.Equal(t, []string{filepath.Join(dir, "bad", "step-0000000010")}, saved)

	want, err := run("plain", 0)
	require.NoError(t, err)
	got, err := run("replayed", 0, fit.Replay(1))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = os.Stat(filepath.Join(dir, "replayed", "step-0000000024"))
	require.NoError(t, err)

	_, err = run("none", 0, fit.Replay(0))
	require.ErrorContains(t, err, "at least 1")
}

// TestWhatTheHostsSavedSinceACleanReplayIsRemoved checks that the next life resumes on both hosts
// from the last local checkpoint that a replay has confirmed, with the losses of a run without a
// wrong bit.
func TestWhatTheHostsSavedSinceACleanReplayIsRemoved(t *testing.T) {
	sys, dir := plugintest.System(t, 4), t.TempDir()
	life := func(at int64) (results [2]fit.Result, losses map[int64]float64, errs []error) {
		losses = map[int64]float64{}
		errs = strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 4},
			func(ctx context.Context, s *strategy.TPUStrategy) error {
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
					denseLoss(1), train.Options{}))
				near := fit.LocalCheckpoints{Folder: filepath.Join(dir, fmt.Sprint("host-", s.Process())), Every: 3}
				var err error
				results[s.Process()], err = fit.Run(ctx, step, fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: 24,
					Every: 1, Resume: true}, fit.Replay(4),
					fit.Checkpoint(filepath.Join(dir, "far"), 20, fit.CheckpointOptions{Local: near}),
					fit.Each(1, func(ctx context.Context, st *fit.State) error {
						if s.Process() == 0 {
							losses[st.Step()], _ = st.Value(fit.Loss)
						}
						if st.Step() != at || s.Process() != 1 {
							return nil
						}
						return turnBit(ctx, s.Variables(step.Store()).All()[0], 3)
					}))
				return err
			})
		return results, losses, errs
	}
	_, first, errs := life(14) // steps 3 to 15 are saved, 12 and 16 replayed
	for process, err := range errs {
		var e *replay.Error
		require.ErrorAs(t, err, &e, "process %d", process)
		assert.Equal(t, 69, interrupt.ExitCodeFor(err))
	}
	results, second, errs := life(0)
	strategytest.NoErrors(t, errs)
	for process := range results {
		assert.EqualValues(t, 12, results[process].ResumedFrom, "process %d: not 15", process)
	}
	for _, step := range []int64{13, 14} {
		assert.Equal(t, first[step], second[step], "step %d", step)
	}
}

// turnBit flips a bit of a variable on the device of a partition.
func turnBit(ctx context.Context, v *strategy.Variable, partition int) error {
	m := engine.Internal(v.Strategy())
	on := m.Runtime()
	return m.WithBuffers(ctx, "turning a bit", []*strategy.Variable{v}, func(at []*engine.Layout,
		held []engine.Buffers) (_ []engine.Buffers, err error) {
		fresh := on.Buffers()
		for p, b := range held[0] {
			if b == nil || !on.Local[p] {
				continue
			}
			image := make([]byte, at[0].ShardBytes)
			if err := b.ToHost(ctx, image); err != nil {
				return nil, err
			}
			if p == partition {
				image[0] ^= 0x10
			}
			if fresh[p], err = on.System.Runtime().BufferFromHost(ctx, image, at[0].Type, at[0].Buffer, on.All[p]); err != nil {
				return nil, err
			}
		}
		return []engine.Buffers{fresh}, nil
	})
}
