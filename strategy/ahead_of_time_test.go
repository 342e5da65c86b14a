package strategy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestAOTStepsAreCompiledForASliceThatIsNotThereAndCannotRun(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2,
		Variables: strategytest.AnnotatedRules(2)})
	assert.Equal(t, 4, strat.NumReplicasInSync())
	assert.Nil(t, strat.System())
	assert.Equal(t, "v5e:2x4", strat.Slice().Info().Name)
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
	_, err = step.Run(ctx, tensors.FromShape(x), tensors.FromShape(y))
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = step.Run(ctx, x, y)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
	_, err = step.Bind(ctx, x, y)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
	value, err := strat.Mirror(ctx, []float32{1, 2}, logical.Annotation{})
	require.NoError(t, err)
	_, err = value.Local(ctx, 0)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
	require.ErrorIs(t, value.Ready(ctx), strategy.ErrAheadOfTime)
	require.NoError(t, value.Close())
	v, err := strat.NewVariable(ctx, []float32{1, 2, 3}, strategy.VariableOptions{})
	require.NoError(t, err)
	_, err = v.Local(ctx, 0)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
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

func TestAOTAClosedSliceTakesNoStrategy(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	slice, err := system.Describe(t.Context(), "v5e:2x4", system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
	require.NoError(t, err)
	require.NoError(t, slice.Close())
	_, err = strategy.NewAheadOfTime(slice, strategy.Options{})
	var own *strategy.Error
	require.ErrorAs(t, err, &own)
	require.ErrorIs(t, err, pjrt.ErrClosed)
	assert.EqualError(t, err, "strategy: new ahead of time: system: the slice is closed; create a new one with Describe")
}

// A nest function with shapes as arguments is compiled for a described slice.
func TestAOTNestsOfShapes(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	type pair struct{ A, B any }
	s := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2})
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		b := args[0].(pair)
		return map[string]any{"sum": graph.ReduceAllSum(b.A.(*graph.Node)), "name": b.B}
	}, strategy.FunctionOptions{SplitBatch: true})
	args := pair{shapes.Make(dtypes.Float32, 8, 3), "v5e"}
	c, err := f.Compiled(ctx, args)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 3}, c.Module.Arguments[0].LocalDims)
	_, err = f.Run(ctx, args)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
}
