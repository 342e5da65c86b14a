package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The TPU compiler accepts the programs of uneven batches, from shapes alone.
func TestAOTUnevenBatchesAreCompiled(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2,
		Variables: strategytest.AnnotatedRules(2)})
	x, y := strategytest.BatchShapes(30) // 8, 8, 8 and 6 rows
	c, err := strategytest.AnnotatedStep(strat).Compiled(ctx, x, y)
	require.NoError(t, err)
	assert.Equal(t, []int{8, 8}, c.Module.Arguments[0].LocalDims)
	assert.Contains(t, string(c.Module.Text), "stablehlo.select")
	for name, batch := range map[string][]any{
		"convolution":                    {shapes.Make(dtypes.Float32, 13, 8, 8, 3), shapes.Make(dtypes.Float32, 13, 1)},
		"batch norm by the backend's op": {shapes.Make(dtypes.Float32, 13, 4, 4, 2), shapes.Make(dtypes.Float32, 13, 1)},
		"attention":                      {shapes.Make(dtypes.Float32, 13, 6, 8), shapes.Make(dtypes.Float32, 13, 1)},
		"embedding, cross entropy":       {shapes.Make(dtypes.Int32, 13, 5), shapes.Make(dtypes.Int32, 13, 1)},
	} {
		whole := strategytest.Ahead(t, "v5e:2x4", strategy.Options{})
		c, err := strategytest.OK(train.New(whole, model.NewStore(), optimizer.Adam().Done(), paddedModels[name].loss,
			train.Options{})).Compiled(ctx, batch...)
		require.NoError(t, err, name)
		assert.Equal(t, 2, c.Module.Arguments[0].LocalDims[0], name)
	}
}
