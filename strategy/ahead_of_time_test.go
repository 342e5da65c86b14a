package strategy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestAOTStepsAreCompiledForASliceThatIsNotThereAndCannotRun(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2, Variables: strategytest.AnnotatedRules(2)})
	assert.Equal(t, 4, strat.NumReplicasInSync())
	assert.Nil(t, strat.System())
	assert.Equal(t, "v5e:2x4", strat.Slice().Facts().Name)
	step := strategytest.AnnotatedStep(strat)
	x, y := strategytest.BatchShapes(32)
	c, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	assert.Nil(t, c.Executable)
	stats, err := c.Program.MemoryStats()
	require.NoError(t, err)
	assert.Positive(t, stats.Arguments)
	assert.Positive(t, stats.Alias, "variables are updated in place")
	assert.Len(t, c.Variables, len(c.Module.Arguments))
	assert.False(t, c.Variables[0], "the batch")
	assert.True(t, c.Variables[2], "a weight")
	assert.Positive(t, c.Compiling)

	var refused *strategy.AheadOfTimeError
	_, err = step.Run(ctx, tensors.FromShape(x), tensors.FromShape(y))
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = step.Run(ctx, x, y)
	require.ErrorAs(t, err, &refused)
	_, err = step.Bind(ctx, x, y)
	require.ErrorAs(t, err, &refused)
	value, err := strat.Mirror(ctx, []float32{1, 2}, logical.Annotation{})
	require.NoError(t, err)
	_, err = value.Local(ctx, 0)
	require.ErrorAs(t, err, &refused)
	require.ErrorAs(t, value.Ready(ctx), &refused)
	require.NoError(t, value.Close())
	v, err := strat.NewVariable(ctx, []float32{1, 2, 3}, strategy.VariableOptions{})
	require.NoError(t, err)
	_, err = v.Local(ctx, 0)
	require.ErrorAs(t, err, &refused)
	_, err = strat.Reduce(ctx, strategy.Sum, value)
	require.Error(t, err)
}

func TestAOTBadShapesAreArgumentErrors(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2})
	_, y := strategytest.BatchShapes(32)
	for name, shape := range map[string]shapes.Shape{
		"invalid": {}, "indivisible": shapes.Make(dtypes.Float32, 33, 8), "scalar": shapes.Make(dtypes.Float32),
	} {
		_, err := strategytest.AnnotatedStep(strat).Compiled(context.Background(), shape, y)
		var argument *strategy.ArgumentError
		require.ErrorAs(t, err, &argument, name)
		assert.Equal(t, 0, argument.Argument, name)
	}
	_, err := strategy.NewAheadOfTime(strat.Slice(), strategy.Options{LogicalDevices: 3})
	var option *strategy.OptionError
	require.ErrorAs(t, err, &option)
}

// wideModel has two layers of width x width, of which a replica's gradients and
// Adam's moments make four copies.
func wideModel(width int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := graph.Tanh(layers.Dense(rc.Scope("up"), in[0], false, width))
		h = graph.Tanh(layers.Dense(rc.Scope("wide"), h, false, width))
		y := layers.Dense(rc.Scope("down"), h, false, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
}

func TestAOTATooLargeModelIsRefusedWithItsLargestTensorsAndFitsWhenSplit(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	const width = 40 << 10 // 6.25 GiB of weights
	x, y := strategytest.BatchShapes(64)
	compile := func(p int) error {
		opts := strategy.Options{LogicalDevices: p}
		if p > 1 {
			opts.Variables = logical.Rules{
				logical.Match(`up/.*weights`, logical.SplitInto(1, p)),
				logical.Match(`wide/.*weights`, logical.SplitInto(1, p)),
			}
		}
		strat := strategytest.Ahead(t, "v5e:4x4", opts)
		store := model.NewStore()
		_, err := train.New(strat, store, optimizer.Adam().Done(), wideModel(width)).Compiled(ctx, x, y)
		return err
	}
	err := compile(1)
	var memory *strategy.MemoryError
	require.ErrorAs(t, err, &memory)
	t.Log(err, memory.Log)
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	assert.NotEmpty(t, memory.Used)
	assert.NotEmpty(t, memory.Limit)
	require.NotEmpty(t, memory.Largest)
	assert.Contains(t, memory.Largest[0].Name, "/wide/dense/weights")
	assert.Equal(t, int64(4*width*width), memory.Largest[0].BytesPerDevice)
	assert.ErrorContains(t, err, "use more logical devices")
	require.NoError(t, compile(8))
}
