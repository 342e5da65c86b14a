package strategy_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestPhasesTellOfAStepOnItsWayToAProgram(t *testing.T) {
	sys := plugintest.System(t, 2)
	var told []phase.Phase
	s, err := strategy.New(sys, strategy.Options{LogicalDevices: 2, Phases: func(p phase.Phase) {
		told = append(told,
			p)
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()

	double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{Name: "double"})
	results, err := double.Run(t.Context(), float32(1))
	require.NoError(t, err)
	_, err = double.Run(t.Context(), float32(2))
	require.NoError(t, err)
	var stages []phase.Stage
	for _, p := range told {
		stages = append(stages, p.Stage)
		assert.Equal(t, []any{"double", "cpu", 1, 2}, []any{p.Name, p.Target, p.Replicas, p.LogicalDevices})
		assert.Equal(t, p.Stage >= phase.Compiling, p.TextBytes > 100, "%v has a text of %d bytes", p.Stage, p.TextBytes)
		assert.NoError(t, p.Err)
	}
	assert.Equal(t, []phase.Stage{phase.Tracing, phase.Lowering, phase.Compiling, phase.Done}, stages,
		"the second run has the program")

	// Internal programs are not reported.
	told = nil
	_, err = s.Reduce(t.Context(), strategy.Sum, results[0])
	require.NoError(t, err)
	_, err = double.Lowered(t.Context(), shapes.Make(dtypes.Float32, 3))
	require.NoError(t, err)
	assert.Empty(t, told)

	refusal := errors.New("no such step")
	_, err = s.Function(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node { panic(refusal) },
		strategy.FunctionOptions{}).Run(t.Context(), float32(1))
	require.ErrorIs(t, err, refusal)
	require.Len(t, told, 2)
	assert.Equal(t, phase.Done, told[1].Stage)
	assert.ErrorIs(t, told[1].Err, refusal)
	assert.Equal(t, "tracing lowering compiling done Stage(9)", told[0].Stage.String()+" "+phase.Lowering.String()+" "+
		phase.Compiling.String()+" "+told[1].Stage.String()+" "+phase.Stage(9).String())
}
