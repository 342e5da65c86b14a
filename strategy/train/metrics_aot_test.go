package train_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// libtpu compiles a step with all metrics, and its evaluation.
func TestMetricsCompileAheadOfTime(t *testing.T) {
	s := strategytest.Ahead(t, "v5e:2x2", strategy.Options{Replicas: 2, LogicalDevices: 2,
		Variables: strategytest.Share(logical.ShardParameters, 1)})
	x, y := shapes.Make(dtypes.Float32, 8, 8), shapes.Make(dtypes.Int32, 8, 1)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), classes, train.Options{
		Metrics: classMetrics(), Norms: true, UpdateNorm: true, ClipNorm: 1, NonFinite: train.Skip,
		LearningRate: schedule.WarmUp(10, schedule.Cosine(0.1, 0.01, 100))}))
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), "tensor<13x2xf64>")
	_, err = strategytest.OK(train.NewEvaluation(s, store, classes, train.Options{Metrics: classMetrics()})).Compiled(
		t.Context(), x, y)
	require.NoError(t, err)
	_, err = step.Metrics(t.Context())
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
}
