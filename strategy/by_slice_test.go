package strategy_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// twoSlices returns 8 CPU devices that represent two slices of 2x2 chips.
func twoSlices(t *testing.T) *system.System {
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: 8, CPUSlices: 2, MeshShape: []int{4, 2, 1, 1},
		Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sys.Close()) })
	return sys
}

func TestBySliceAReplicaIsOnOneSliceAndTheNumbersAreThoseOfOneDevice(t *testing.T) {
	train := func(strat *strategy.TPUStrategy) []float64 {
		step := strategytest.AnnotatedStep(strat)
		x, y := strategytest.Batch(32)
		var losses []float64
		for range 4 {
			loss, err := step.Run(t.Context(), x, y)
			require.NoError(t, err)
			value, err := loss.Float64(t.Context())
			require.NoError(t, err)
			losses = append(losses, value)
		}
		return losses
	}
	want := train(strategytest.New(t, 1, 1, strategy.Options{}))
	sys := twoSlices(t)
	for _, p := range []int{1, 2, 4} {
		strat, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), LogicalDevices: p, BySlice: true,
			Variables: strategytest.AnnotatedRules(p)})
		require.NoError(t, err)
		assert.Equal(t, 8/p, strat.NumReplicasInSync())
		assert.True(t, strat.DeviceAssignment().IsBySlice())
		assert.InDeltaSlice(t, want, train(strat), 1e-5, "P=%d", p)
		require.NoError(t, strat.Close())
	}
}

func TestAReplicaThatSpansSlicesIsSaidAndBySliceRefusesIt(t *testing.T) {
	sys := twoSlices(t)
	var log bytes.Buffer
	strat, err := strategy.New(sys, strategy.Options{LogicalDevices: 8, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, strat.Close())
	assert.Contains(t, log.String(), "logical devices of a replica are on several slices")
	assert.Contains(t, log.String(), "replicas=1 of=1 first=0 logical_devices=8 slices=2")

	log.Reset()
	strat, err = strategy.New(sys, strategy.Options{LogicalDevices: 4, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, strat.Close())
	assert.Empty(t, log.String())

	var wrong *strategy.OptionError
	_, err = strategy.New(sys, strategy.Options{LogicalDevices: 8, BySlice: true})
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "LogicalDevices", wrong.Option)
	_, err = strategy.New(sys, strategy.Options{Replicas: 3, LogicalDevices: 2, BySlice: true})
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, "3 replicas cannot be divided equally among 2 slices")

	wide, err := tpu.BuildDeviceAssignment(sys.Topology(), tpu.AssignmentOptions{ComputationShape: []int{4, 1, 1, 1},
		Replicas: 2})
	require.NoError(t, err)
	_, err = strategy.New(sys, strategy.Options{Assignment: wide, BySlice: true})
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "BySlice", wrong.Option)
}

// TestReplicasDoNotMixSlices checks that replicas are placed by slice if TensorFlow's order would
// mix the slices. An Assignment that mixes slices is an error if state is sharded over the
// replicas.
func TestReplicasDoNotMixSlices(t *testing.T) {
	sys := twoSlices(t)
	mixed, err := tpu.BuildDeviceAssignment(sys.Topology(), tpu.AssignmentOptions{ComputationShape: []int{1, 1, 1, 1},
		Replicas: 8})
	require.NoError(t, err)
	require.True(t, mixed.HasMixedSliceOrder())
	shared := logical.Rules{logical.MatchState("", logical.ShardOptimizer)}
	for _, o := range []strategy.Options{{}, {Variables: shared}, {Replicas: 8, LogicalDevices: 1}} {
		strat, err := strategy.New(sys, o)
		require.NoError(t, err)
		assert.True(t, strat.DeviceAssignment().IsBySlice())
		require.NoError(t, strat.Close())
	}
	strat, err := strategy.New(sys, strategy.Options{Assignment: mixed})
	require.NoError(t, err)
	require.NoError(t, strat.Close())
	var wrong *strategy.OptionError
	_, err = strategy.New(sys, strategy.Options{Assignment: mixed, Variables: shared})
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "Assignment", wrong.Option)
	assert.ErrorContains(t, err, "set BySlice")
}

// Logical devices communicate within a slice; only the sum of the gradients crosses slices.
func TestAOTBySliceOnlyGradientsCrossTheNetwork(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const width, rows, layers = 256, 64, 2
	batch := shapes.Make(dtypes.Float32, rows, width)
	options := strategy.Options{LogicalDevices: 8, BySlice: true, Variables: logical.Rules{
		logical.Match(`up.*weights`, logical.SplitInto(1, 8)), logical.Match(`down.*weights`, logical.SplitInto(8, 1)),
	}}
	r := reportOf(t, "2x v5e:2x4", options, stackOf(width, layers, true), batch, batch)
	within, _ := r.CollectiveBytes("logical")
	assert.Equal(t, int64(rows/2*width*4), within, "the activations: %+v", r.Collectives)
	crossing, _ := r.CollectiveBytes("slices")
	gradients := int64(layers * width * width * 4 / 8) // each device has an eighth of each weight
	assert.InDelta(t, gradients, crossing, float64(gradients)/8, "%+v", r.Collectives)
}
