package train_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// A training step and an evaluation from files have the clipping, schedule and metrics of the saved
// ones.
func TestStepsFromFilesKeepTheirMetrics(t *testing.T) {
	sys := plugintest.System(t, 4)
	opts := strategy.Options{Replicas: 2, LogicalDevices: 2, Variables: strategytest.Share(logical.ShardParameters, 1)}
	s := strategytest.On(t, sys, opts)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), classes, train.Options{Metrics: classMetrics(),
		Norms: true, ClipNorm: 0.1,
		LearningRate: schedule.WarmUp(2, schedule.Constant(0.05))}))
	held := strategytest.OK(train.NewEvaluation(s, store, classes, train.Options{Metrics: classMetrics()}))
	x, y := classBatch(0, 8)
	var trained, evaluated bytes.Buffer
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	require.NoError(t, stepfile.Save(t.Context(), &trained, compiled))
	compiled, err = held.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	require.NoError(t, stepfile.Save(t.Context(), &evaluated, compiled))

	there, kept := strategytest.On(t, sys, opts), strategytest.SeededStore()
	_, err = strategytest.OK(train.New(there, kept, optimizer.Adam().Done(), classes,
		train.Options{})).Lowered(t.Context(), x, y) // creates the variables
	require.NoError(t, err)
	loaded, err := stepfile.LoadTrain(t.Context(), there, bytes.NewReader(trained.Bytes()), kept)
	require.NoError(t, err)
	loadedHeld, err := stepfile.LoadEvaluation(t.Context(), there, bytes.NewReader(evaluated.Bytes()), kept)
	require.NoError(t, err)
	assert.Equal(t, step.MetricNames(), loaded.MetricNames())
	for i := range 3 {
		x, y := classBatch(i, 8)
		for _, step := range []*train.Step{step, loaded} {
			_, err := step.Run(t.Context(), x, y)
			require.NoError(t, err)
		}
		assert.Equal(t, readings(t, step), readings(t, loaded))
	}
	want, err := held.Over(t.Context(), heldOut(8, 8))
	require.NoError(t, err)
	got, err := loadedHeld.Over(t.Context(), heldOut(8, 8))
	require.NoError(t, err)
	assert.Equal(t, want, got)

	_, err = stepfile.LoadEvaluation(t.Context(), there, bytes.NewReader(trained.Bytes()), kept)
	require.ErrorContains(t, err, "train_step is no evaluation")
	_, err = stepfile.LoadTrain(t.Context(), there, bytes.NewReader(evaluated.Bytes()), kept)
	require.ErrorContains(t, err, "evaluation is no training step")
	f, err := stepfile.Load(t.Context(), there, bytes.NewReader(trained.Bytes()), kept)
	require.NoError(t, err)
	_, err = train.EvaluationOf(f)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	empty := strategytest.On(t, sys, opts)
	_, err = stepfile.LoadTrain(t.Context(), empty, bytes.NewReader(trained.Bytes()), strategytest.SeededStore())
	require.Error(t, err, "the store lacks the variables")
	assert.Empty(t, empty.DistributedVariables(), "the state of the metrics is left")
}
