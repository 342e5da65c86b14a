package fit_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// TestEachFormOfDataGoesOn runs two passes in parts, one of which ends at the boundary between the
// passes. The losses equal the losses of one run.
func TestEachFormOfDataGoesOn(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	ds := dataset(t, 3)
	distributed := func(t *testing.T) fit.Data {
		d, err := feed.Distribute(s, ds, feed.DistributeOptions{})
		require.NoError(t, err)
		return fit.Distributed(d, feed.Options{Depth: 1})
	}
	for name, c := range map[string]struct {
		data   func(t *testing.T) fit.Data
		passes int64
	}{
		"dataset":     {func(*testing.T) fit.Data { return fit.Dataset(ds) }, 2},
		"padded":      {func(*testing.T) fit.Data { return fit.Dataset(ds, feed.Options{Depth: 4, Partial: feed.Exact}) }, 2},
		"distributed": {distributed, 2},
		"batches":     {func(*testing.T) fit.Data { return fit.Batches(batches(3)) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := map[int64]float64{}, map[int64]float64{}
			result, err := fit.Run(ctx, dense(s, 2), c.data(t), fit.Options{Epochs: c.passes}, losses(want))
			require.NoError(t, err)
			assert.Equal(t, int64(6), result.Step)
			assert.Equal(t, c.passes, result.Epochs)
			if name != "batches" {
				assert.NotEqual(t, want[1], want[4])
			}
			dir := t.TempDir()
			for _, until := range []int64{2, 3, 5, 0} {
				ctx, cancel := context.WithCancel(ctx)
				_, err := fit.Run(ctx, dense(s, 2), c.data(t), fit.Options{Epochs: c.passes, Resume: true}, losses(got),
					fit.Checkpoint(dir, 0),
					fit.Hook{Every: 1, Record: func(_ context.Context, s *fit.State) error {
						if s.Step() == until {
							cancel()
						}
						return nil
					}})
				cancel()
				if until > 0 {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.NoError(t, err)
				}
			}
			assert.Equal(t, want, got)

			// A completed run runs no step, and restores the variables.
			step := dense(s, 2)
			result, err = fit.Run(ctx, step, c.data(t), fit.Options{Epochs: c.passes, Resume: true}, fit.Checkpoint(dir, 0))
			require.NoError(t, err)
			assert.Equal(t, int64(6), result.Step)
			assert.Zero(t, result.StepsRun)
			x, y := strategytest.Batch(0)
			again, err := step.Run(ctx, x, y)
			require.NoError(t, err)
			assert.NotEqual(t, want[1], strategytest.Float64(t, again))
		})
	}
}

func TestAFeedGoesOnWhereTheCheckpointSays(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	dir := filepath.Join(t.TempDir(), "run")
	open := func(from input.State) *feed.Feed {
		f, err := feed.FromDataset(ctx, s, dataset(t, 3).Repeat(-1), feed.Options{Start: from})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		return f
	}
	want, got := map[int64]float64{}, map[int64]float64{}
	_, err := fit.Run(ctx, dense(s, 2), fit.Feed(open(input.State{})), fit.Options{Steps: 8}, losses(want))
	require.NoError(t, err)
	_, err = fit.Run(ctx, dense(s, 2), fit.Feed(open(input.State{})), fit.Options{Steps: 5, Resume: true}, losses(got),
		fit.Checkpoint(dir, 0))
	require.NoError(t, err)
	_, err = fit.Run(ctx, dense(s, 2), fit.Feed(open(input.State{})), fit.Options{Steps: 8, Resume: true},
		fit.Checkpoint(dir, 0))
	require.ErrorIs(t, err, input.ErrState)
	require.ErrorContains(t, err, "as Saved returns it")
	point, err := fit.LatestSnapshot(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, int64(5), point.Step)
	_, err = fit.Run(ctx, dense(s, 2), fit.Feed(open(point.Input)), fit.Options{Steps: 8, Resume: true}, losses(got),
		fit.Checkpoint(dir, 0))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = fit.LatestSnapshot(t.Context(), t.TempDir())
	require.Error(t, err)
}

// TestRowsAreCountedForAllReplicas checks the number of rows for each form of batches.
func TestRowsAreCountedForAllReplicas(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x, y := strategytest.Batch(0)
	step := dense(s, 2)
	var values []any
	for _, of := range []*tensors.Tensor{x, y} {
		v, err := s.SplitBatch(ctx, of, logical.Annotation{}, false)
		require.NoError(t, err)
		defer v.Close()
		values = append(values, v)
	}
	for name, batch := range map[string][]any{"tensors": {x, y}, "values": values, "slices": {x.Value(), y.Value()}} {
		result, err := fit.Run(ctx, step, fit.Batches(func(yield func([]any, error) bool) {
			for yield(batch, nil) {
			}
		}), fit.Options{Steps: 3})
		require.NoError(t, err, name)
		assert.Equal(t, int64(96), result.Rows, name)
	}
}
