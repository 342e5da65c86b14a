package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestErrorsNameTheClosedObjectAndTheStaleContext(t *testing.T) {
	ctx := t.Context()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer sys.Close()
	s, err := strategy.New(sys, strategy.Options{})
	require.NoError(t, err)
	var stale context.Context
	step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		stale = rc.Context()
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{Name: "step"})
	out, err := step.Run(ctx, float32(1))
	require.NoError(t, err)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)

	_, err = step.Run(stale, float32(1))
	require.ErrorIs(t, err, strategy.ErrContext)
	assert.ErrorContains(t, err, "its context belongs to a step that has already been traced")
	_, err = s.NewVariable(stale, float32(1), strategy.VariableOptions{Name: "x"})
	assert.ErrorContains(t, err, "its context belongs to a step that has already been traced")

	closed := func(err error, text string) {
		t.Helper()
		require.ErrorIs(t, err, strategy.ErrClosed)
		assert.ErrorContains(t, err, text)
	}
	require.NoError(t, out[0].Close())
	_, err = step.Run(ctx, out[0])
	closed(err, "value PerReplica(Float32[], none) is closed; close it after its last use")
	require.NoError(t, v.Close())
	_, err = v.Read(ctx)
	closed(err, `variable "w" is closed; close it after its last use`)
	require.NoError(t, s.Close())
	_, err = step.Run(ctx, float32(1))
	closed(err, "strategy: the strategy is closed; create a new one with New")
	var zero strategy.TPUStrategy
	_, err = zero.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	closed(err, "strategy: the strategy is a zero value; create it with New")
}
