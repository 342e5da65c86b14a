package fit_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// heavy is a variable whose save fails this number of times because the disk is full.
type heavy struct{ times int }

func (*heavy) Path() string                                          { return "heavy" }
func (*heavy) Shape() shapes.Shape                                   { return shapes.Make(dtypes.Float32) }
func (h *heavy) RestoreValue(context.Context, *tensors.Tensor) error { return nil }
func (h *heavy) SaveValue(context.Context) (*tensors.Tensor, error) {
	if h.times--; h.times >= 0 {
		return nil, &fs.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC}
	}
	return tensors.FromScalar(float32(1)), nil
}

func TestAFullDiskDoesNotEndARun(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	run := func(name string, full int, steps int64) (string, error) {
		var log bytes.Buffer
		_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: steps, Every: 2, Resume: true,
			Logger: slog.New(slog.NewTextHandler(&log, nil))},
			fit.Checkpoint(filepath.Join(dir, name), 4, fit.CheckpointOptions{Include: []checkpoint.Variable{&heavy{full}}}))
		return log.String(), err
	}
	log, err := run("for a while", 1, 8)
	require.NoError(t, err)
	assert.Contains(t, log, "no space left on device")
	assert.Equal(t, []string{"step-0000000008"}, names(t, filepath.Join(dir, "for a while")))

	log, err = run("for ever", 99, 6)
	require.ErrorIs(t, err, fit.ErrSave)
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.ErrorContains(t, err, "fit: save step 6 in ")
	assert.Contains(t, log, "training continues without this checkpoint")
	assert.Empty(t, names(t, filepath.Join(dir, "for ever")))

	// The earlier checkpoints stay, and the run resumes from them.
	_, err = run("for a while", 99, 12)
	require.ErrorIs(t, err, fit.ErrSave)
	assert.Equal(t, []string{"step-0000000008"}, names(t, filepath.Join(dir, "for a while")))
	_, err = run("for a while", 0, 12)
	require.NoError(t, err)
	assert.Equal(t, []string{"step-0000000008", "step-0000000012"}, names(t, filepath.Join(dir, "for a while")))
}

// TestAFullDiskKeepsTheBestSoFar checks that a value whose checkpoint was not saved is not the best
// value.
func TestAFullDiskKeepsTheBestSoFar(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	value := map[int64]float64{1: 5, 2: 4, 3: 3, 4: 3.5}
	var log bytes.Buffer
	disk := &heavy{}
	_, err := fit.Run(context.Background(), dense(s, 2), fit.Batches(batches(4)),
		fit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		fit.Each(1, func(_ context.Context, s *fit.State) error {
			if s.Step() == 3 {
				disk.times = 1
			}
			s.SetMetric("mine", value[s.Step()])
			return nil
		}), fit.KeepBest(filepath.Join(dir, "best"), "mine"), fit.Checkpoint(filepath.Join(dir, "run"), 0,
			fit.CheckpointOptions{Include: []checkpoint.Variable{disk}}))
	require.NoError(t, err)
	assert.Contains(t, log.String(), "no room for a better one")
	assert.Equal(t, []string{"step-0000000004"}, names(t, filepath.Join(dir, "best")),
		"3 was not saved, and 3.5 is better than 4")
}

// TestTwoRunsDoNotShareADirectory checks that the second of two concurrent runs is refused.
func TestTwoRunsDoNotShareADirectory(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	inner := func(context.Context, *fit.State) error {
		_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 5, Resume: true},
			fit.Checkpoint(dir, 1))
		return err
	}
	_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 5}, fit.Checkpoint(dir, 2),
		fit.Each(3, inner))
	var owner *checkpoint.OwnerError
	require.ErrorAs(t, err, &owner)
	require.ErrorIs(t, err, checkpoint.ErrBusy)
}

// TestAStepThatIsNotFiniteEndsARun checks that the previous checkpoint stays the last one.
func TestAStepThatIsNotFiniteEndsARun(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), denseLoss(2),
		train.Options{NonFinite: train.Stop}))
	data := fit.Batches(func(yield func([]any, error) bool) {
		for i := 0; ; i++ {
			x, y := strategytest.Batch(i)
			if i == 5 {
				y = tensors.FromFlatDataAndDimensions(append([]float32{float32(math.NaN())}, make([]float32, 31)...), 32, 1)
			}
			if !yield([]any{x, y}, nil) {
				return
			}
		}
	})
	result, err := fit.Run(ctx, step, data, fit.Options{Steps: 9}, fit.Checkpoint(dir, 2))
	var stopped *train.NonFiniteError
	require.ErrorAs(t, err, &stopped)
	assert.Equal(t, int64(6), stopped.Step)
	assert.Equal(t, int64(5), result.Step)
	assert.Equal(t, []string{"step-0000000002", "step-0000000004"}, names(t, dir))
}

// TestADamagedCheckpointIsPassedOver checks that the run resumes from the previous checkpoint.
func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	want, got := map[int64]float64{}, map[int64]float64{}
	_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 6}, losses(want),
		fit.Checkpoint(dir, 2))
	require.NoError(t, err)
	damaged := shardsOf(t, filepath.Join(dir, "step-0000000006"))
	data, err := os.ReadFile(damaged)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(damaged, data, 0o644))
	var log bytes.Buffer
	result, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 6, Resume: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, losses(got), fit.Checkpoint(dir, 2))
	require.NoError(t, err)
	assert.Equal(t, int64(4), result.ResumedFrom)
	assert.Contains(t, log.String(), "skipping a damaged checkpoint")
	for step, loss := range got {
		assert.Equal(t, want[step], loss)
	}
	point, err := fit.LatestSnapshot(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, int64(6), point.Step, "in the place of the damaged one")
}
