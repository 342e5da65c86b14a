package fit_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// measured returns a step with metrics and its evaluation.
func measured(s *strategy.TPUStrategy) (*train.Step, *train.Evaluation) {
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), denseLoss(2),
		train.Options{Metrics: []train.Metric{train.MeanLoss()}, Norms: true}))
	return step, strategytest.OK(train.NewEvaluation(s, store, denseLoss(2), train.Options{}))
}

// TestEvaluationsStopARunAndKeepTheBest checks that runs that are resumed at different steps write
// the same table as an uninterrupted run.
func TestEvaluationsStopARunAndKeepTheBest(t *testing.T) {
	ctx := context.Background()
	whole := t.TempDir()
	// run runs steps until the data is asked for the batch at which it interrupts the run.
	run := func(dir string, interrupt int) (fit.Result, error) {
		s := strategytest.New(t, 2, 1)
		step, held := measured(s)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		data := fit.Batches(func(yield func([]any, error) bool) {
			i := 0
			for batch := range batches(-1) {
				if i == interrupt {
					cancel()
				}
				if i++; !yield(batch, nil) {
					return
				}
			}
		})
		return fit.Run(ctx, step, data, fit.Options{Steps: 100, Every: 4, Resume: true},
			fit.KeepBest(filepath.Join(dir, "best"), "held/loss"),
			fit.CSV(filepath.Join(dir, "losses.csv")),
			fit.Evaluate("held", held, fit.Dataset(dataset(t, 2)), 5),
			fit.EarlyStop("held/loss", 2, fit.BestOptions{MinDelta: 0.9}),
			fit.Checkpoint(filepath.Join(dir, "run"), 3))
	}
	want, err := run(whole, -1)
	require.NoError(t, err)
	require.Contains(t, want.StopReason, "held/loss has not become better since step")
	require.Less(t, want.Step, int64(100))
	table, err := os.ReadFile(filepath.Join(whole, "losses.csv"))
	require.NoError(t, err)
	require.Contains(t, string(table), "step,epoch,loss,mean_loss,gradient_norm,parameter_norm,held/loss\r\n")

	parts := t.TempDir()
	for _, at := range []int{0, 3, 5, 11} {
		_, err := run(parts, at)
		require.ErrorIs(t, err, context.Canceled)
		var interrupted *interrupt.Error
		require.ErrorAs(t, err, &interrupted)
		assert.Equal(t, int64(at), interrupted.Step)
		assert.Equal(t, at > 0, interrupted.Directory != "")
	}
	result, err := run(parts, -1)
	require.NoError(t, err)
	assert.Equal(t, want.StopReason, result.StopReason)
	assert.Equal(t, want.Step, result.Step)
	got, err := os.ReadFile(filepath.Join(parts, "losses.csv"))
	require.NoError(t, err)
	assert.Equal(t, string(table), string(got))

	// The best checkpoint is the checkpoint of the step with the lowest evaluation loss.
	last, err := checkpoint.OpenManager(t.Context(), filepath.Join(whole, "best"), checkpoint.ManagerOptions{})
	require.NoError(t, err)
	steps, err := last.Steps(t.Context())
	require.NoError(t, err)
	require.Len(t, steps, 1)
	assert.Zero(t, steps[0]%5)
	best, ok := want.Value("held/loss")
	require.True(t, ok)
	assert.NotZero(t, best)
}

func TestEvaluationsThatCannotBe(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	step, held := measured(s)
	good := fit.Dataset(dataset(t, 1))
	for text, hook := range map[string]fit.Hook{
		"no name":        fit.Evaluate("", held, good, 1),
		"no evaluation":  fit.Evaluate("held", nil, good, 1),
		"interval of 0":  fit.Evaluate("held", held, good, 0),
		"interval of -1": fit.Evaluate("held", held, good, -1),
		"the zero Data":  fit.Evaluate("held", held, fit.Data{}, 1),
		"one pass":       fit.Evaluate("held", held, fit.Feed(nil), 1),
		"has no batch":   fit.Evaluate("held", held, fit.Dataset(dataset(t, 1).Take(0)), 1),
		"no batch":       fit.Evaluate("held", held, fit.Batches(batches(0)), 1),
		"is infinite":    fit.Evaluate("held", held, fit.Dataset(dataset(t, 1).Repeat(-1)), 1),
		"batch 0":        fit.Evaluate("held", held, fit.Batches(func(yield func([]any, error) bool) { panic("no") }), 1),
	} {
		result, err := fit.Run(context.Background(), step, fit.Batches(batches(2)), fit.Options{}, hook)
		require.Error(t, err, text)
		assert.ErrorContains(t, err, text)
		assert.LessOrEqual(t, result.StepsRun, int64(1))
	}
}

// TestAShortLastBatchCountsAsItIs evaluates 45 examples in batches of 32, on numbers of replicas
// that do not divide the last 13.
func TestAShortLastBatchCountsAsItIs(t *testing.T) {
	heldOut := dataset(t, 2).Unbatch().Take(45).Batch(32, false)
	loss := func(replicas, logicalDevices int) (value float64) {
		step, held := measured(strategytest.New(t, replicas, logicalDevices))
		_, err := fit.Run(t.Context(), step, fit.Batches(batches(3)), fit.Options{Steps: 2}, fit.Evaluate("held", held,
			fit.Dataset(heldOut), 2),
			fit.Each(2, func(_ context.Context, s *fit.State) error {
				value, _ = s.Value("held/loss")
				return nil
			}))
		require.NoError(t, err)
		require.Positive(t, value)
		return value
	}
	want := loss(1, 1)
	for _, mesh := range [][2]int{{8, 1}, {4, 2}, {2, 4}} {
		assert.InEpsilon(t, want, loss(mesh[0], mesh[1]), 1e-5, "%v", mesh)
	}
}
