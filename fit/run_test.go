package fit_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
)

// batches yields n batches, or an infinite number if n is negative.
func batches(n int) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for i := 0; i != n; i++ {
			x, y := strategytest.Batch(i)
			if !yield([]any{x, y}, nil) {
				return
			}
		}
	}
}

// dataset returns n batches as a dataset of shuffled examples.
func dataset(t testing.TB, n int) input.Dataset {
	t.Helper()
	xs, ys := make([]float32, n*32*8), make([]float32, n*32)
	for i := range xs {
		xs[i] = float32((i*7)%13)/13 - 0.5
		ys[i/8] += xs[i] * float32(i%8)
	}
	x, err := input.NewTensor(xs, n*32, 8)
	require.NoError(t, err)
	y, err := input.NewTensor(ys, n*32, 1)
	require.NoError(t, err)
	return input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Shuffle(64, input.ShuffleOptions{Seed: 3}).Batch(32,
		true)
}

// losses is a hook that collects the losses of all steps.
func losses(into map[int64]float64) fit.Hook {
	return fit.Each(1, func(_ context.Context, s *fit.State) error {
		into[s.Step()], _ = s.Value(fit.Loss)
		return nil
	})
}

func TestARunTakesTheStepsOfABareLoop(t *testing.T) {
	s := strategytest.New(t, 2, 2, strategytest.AnnotatedOptions())
	want := strategytest.Losses(t, strategytest.AnnotatedStep(s), 0, 7)
	got := map[int64]float64{}
	result, err := fit.Run(context.Background(), strategytest.AnnotatedStep(s), fit.Batches(batches(-1)),
		fit.Options{Steps: 7}, losses(got))
	require.NoError(t, err)
	for i, loss := range want {
		assert.Equal(t, loss, got[int64(i+1)])
	}
	assert.Equal(t, int64(7), result.Step)
	assert.Equal(t, int64(7*32), result.Rows)
	last, ok := result.Value(fit.Loss)
	assert.True(t, ok)
	assert.Equal(t, want[6], last)
}

func TestARunGoesOnAsIfNothingHadHappened(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := strategytest.New(t, 2, 1)
	whole := map[int64]float64{}
	_, err := fit.Run(ctx, dense(s, 2), fit.Dataset(dataset(t, 5)), fit.Options{Epochs: 4}, losses(whole))
	require.NoError(t, err)
	require.Len(t, whole, 20)
	for _, steps := range []int64{3, 5, 11, 20} {
		got := map[int64]float64{}
		r, err := fit.Run(ctx, dense(s, 2), fit.Dataset(dataset(t, 5).Repeat(-1)), fit.Options{Steps: steps, Resume: true},
			losses(got), fit.Checkpoint(dir, 2))
		require.NoError(t, err)
		assert.Equal(t, steps, r.Step)
		for i, l := range got {
			assert.Equal(t, whole[i], l, i)
		}
	}
}

// TestAMetricThatNothingMeasuredIsAnErrorInTheEnd uses a hook that could have measured the metric.
func TestAMetricThatNothingMeasuredIsAnErrorInTheEnd(t *testing.T) {
	result, err := fit.Run(context.Background(), dense(strategytest.New(t, 1, 1), 2), fit.Batches(batches(3)),
		fit.Options{},
		fit.Each(1, func(_ context.Context, s *fit.State) error { s.SetMetric("mine", 1); return nil }),
		fit.EarlyStop("yours", 1))
	require.EqualError(t, err, `fit: hook early stop by yours: nothing measures "yours"; there are ["loss" "mine"]`)
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(err))
	assert.Equal(t, int64(3), result.Step)
}
