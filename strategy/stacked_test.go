package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestALoopOfAnOpenedSystemIsCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	step, store, traces := shapedStep(s)
	x, y := strategytest.BatchShapes(32)
	const n = 3
	xs, err := s.StackBatches(ctx, []any{x, x, x}, logical.Annotation{})
	require.NoError(t, err)
	ys, err := s.StackBatches(ctx, []any{y, y, y}, logical.Annotation{})
	require.NoError(t, err)
	_, err = step.Compiled(ctx, xs, ys)
	require.NoError(t, err)
	assert.Empty(t, hasValues(store))

	other, _, _ := shapedStep(s)
	assert.Equal(t, strategytest.LoopLosses(t, other, n, 2), strategytest.LoopLosses(t, step, n, 2))
	assert.Equal(t, 1, *traces)

	_, err = step.Bind(ctx, xs, ys)
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	assert.Contains(t, err.Error(), "made of shapes, which have no contents")
	assert.ErrorContains(t, xs.Ready(ctx), "made of shapes, which have no contents")
	_, err = s.StackBatches(ctx, []any{x, shapes.Make(dtypes.Float32, 16, 8)}, logical.Annotation{})
	assert.ErrorContains(t, err, "a loop has one shape for all")
}
