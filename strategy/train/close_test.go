package train_test

import (
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestAStepThatIsClosedHoldsNothing(t *testing.T) {
	ctx := t.Context()
	s, store := strategytest.New(t, 2, 1), strategytest.SeededStore()
	o := train.Options{Metrics: []train.Metric{train.MeanLoss()}, NonFinite: train.Skip, Average: 0.9}
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
	step := strategytest.OK(train.New(s, store, adam(), strategytest.Annotated(1), o))
	evaluation := strategytest.OK(train.NewEvaluation(s, store, strategytest.Annotated(1), train.Options{}))
	x, y := strategytest.Batch(0)
	loss, err := step.Run(ctx, x, y)
	require.NoError(t, err)
	first, err := loss.Float64(ctx)
	require.NoError(t, err)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	bound, err := step.Bind(ctx, x, y)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, step.SwapAverages(ctx))
	}
	require.NoError(t, evaluation.Run(ctx, x, y))
	require.Len(t, s.DistributedVariables(), 2)

	for range 2 {
		require.NoError(t, step.Close())
		require.NoError(t, evaluation.Close())
	}
	assert.Empty(t, s.DistributedVariables())
	_, err = compiled.Executable.DeviceAssignment()
	assert.ErrorIs(t, err, pjrt.ErrClosed)
	for call, err := range map[string]error{
		"Run": strategytest.Err(step.Run(ctx, x, y)), "RunSteps": strategytest.Err(step.RunSteps(ctx, []any{x, y})),
		"Compiled": strategytest.Err(step.Compiled(ctx, x, y)), "Lowered": strategytest.Err(step.Lowered(ctx, x, y)),
		"Bind": strategytest.Err(step.Bind(ctx, x, y)), "Launch": bound.Launch(ctx),
		"the loss": strategytest.Err(loss.Float64(ctx)),
		"Metrics":  strategytest.Err(step.Metrics(ctx)), "ResetMetrics": step.ResetMetrics(ctx),
		"NonFinite": strategytest.Err(step.NonFinite(ctx)), "ResetNonFinite": step.ResetNonFinite(ctx),
		"SwapAverages":   step.SwapAverages(ctx),
		"Evaluation.Run": evaluation.Run(ctx, x, y), "Results": strategytest.Err(evaluation.Results(ctx)),
		"Reset": evaluation.Reset(ctx),
	} {
		assert.ErrorIs(t, err, strategy.ErrClosed, call)
	}
	require.NoError(t, bound.Close())

	// The store's variables remain, so that another step continues.
	next := strategytest.OK(train.New(s, store, adam(), strategytest.Annotated(1), o))
	loss, err = next.Run(ctx, x, y)
	require.NoError(t, err)
	second, err := loss.Float64(ctx)
	require.NoError(t, err)
	assert.Less(t, second, first)
	n, err := next.NonFinite(ctx)
	require.NoError(t, err)
	assert.Equal(t, int64(2), n.Steps)
	require.NoError(t, s.Close())
	assert.NoError(t, next.Close())
	assert.ErrorIs(t, strategytest.Err(next.Run(ctx, x, y)), strategy.ErrClosed)
}

// A Run that is concurrent with Close either completes or returns an error.
func TestAStepIsClosedBesideItsRuns(t *testing.T) {
	ctx := t.Context()
	s := strategytest.New(t, 2, 1)
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), strategytest.Annotated(1),
		train.Options{}))
	x, y := strategytest.Batch(0)
	_, err := step.Run(ctx, x, y)
	require.NoError(t, err)
	refused := make(chan error)
	for range 4 {
		go func() {
			for {
				if _, err := step.Run(ctx, x, y); err != nil {
					refused <- err
					return
				}
			}
		}()
	}
	require.NoError(t, step.Close())
	for range 4 {
		assert.ErrorIs(t, <-refused, strategy.ErrClosed)
	}
}
