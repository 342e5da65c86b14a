package strategy_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

func TestAFunctionThatIsClosedIsRefused(t *testing.T) {
	ctx := t.Context()
	s := strategytest.New(t, 2, 1)
	twice := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(in[0], in[0])}
	}
	f, other := s.Function(twice, strategy.FunctionOptions{}), s.Function(twice, strategy.FunctionOptions{})
	nest := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any { return args }, strategy.FunctionOptions{})
	var kept []*strategy.PerReplica
	for _, f := range []*strategy.Function{f, other} {
		out, err := f.Run(ctx, float32(2))
		require.NoError(t, err)
		kept = append(kept, out...)
	}
	compiled, err := nest.Compiled(ctx, []any{float32(1)})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.Close())
		require.NoError(t, nest.Close())
	}
	_, err = compiled.Executable.DeviceAssignment()
	assert.ErrorIs(t, err, pjrt.ErrClosed)
	_, err = f.Run(ctx, float32(2))
	assert.ErrorIs(t, err, strategy.ErrClosed)
	assert.EqualError(t, err, "strategy: function step is closed; close it after its last run")
	_, err = nest.Run(ctx, []any{float32(1)})
	assert.ErrorIs(t, err, strategy.ErrClosed)
	assert.Equal(t, []any{float32(4), float32(4)}, strategytest.Values(t, kept[0], 2)) // the caller owns the results
	_, err = other.Run(ctx, float32(2))
	assert.NoError(t, err)
	assert.NoError(t, s.Function(twice, strategy.FunctionOptions{}).Close()) // it has never run
	assert.NoError(t, new(strategy.TPUStrategy).Function(twice, strategy.FunctionOptions{}).Close())
}
