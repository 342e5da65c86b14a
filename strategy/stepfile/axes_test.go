package stepfile_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestAStepOverNamedAxesIsSavedWithTheirNames(t *testing.T) {
	sys := plugintest.System(t, 4)
	opts := strategytest.NamedOptions(1, strategytest.Axes("model", "sequence")...)
	saving := strategytest.On(t, sys, opts)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(saving, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named,
		train.Options{}))
	strategytest.NamedLosses(t, step, 0, 1)
	require.NoError(t, saving.Variables(store).Pull(t.Context()))
	x, y := strategytest.NamedBatch(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	file := mustSave(t, compiled)
	assert.Contains(t, string(file), `"logical_axes":[{"Name":"model","Size":2},{"Name":"sequence","Size":2}]`)
	want := strategytest.NamedLosses(t, step, 1, 2)

	loading := strategytest.On(t, plugintest.System(t, 4), opts)
	loaded, err := stepfile.LoadTrain(t.Context(), loading, bytes.NewReader(file), store)
	require.NoError(t, err)
	again, err := loaded.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	assert.Equal(t, "model=2,sequence=2", again.Module.LogicalMesh.String())
	assert.Equal(t, file, mustSave(t, again))
	assert.Equal(t, want, strategytest.NamedLosses(t, loaded, 1, 2))

	for _, axes := range [][]sharding.Axis{strategytest.Axes("sequence", "model"), {{Name: "model", Size: 4}}, nil} {
		other := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 4, LogicalAxes: axes})
		_, err := stepfile.LoadTrain(t.Context(), other, bytes.NewReader(file), store)
		var refused *stepfile.Error
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, stepfile.Axes, refused.Reason)
		assert.ErrorContains(t, err, "it was compiled for other logical axes: model=2,sequence=2, and the strategy has "+
			other.LogicalMesh().String())
	}
	for old, new := range map[string]string{
		`"logical_axes":[{"Name":"model"`: `"logical_axes":[{"Name":"other"`,
		`"axes":[null,["model"]]`:         `"axes":[["axis"],null]`,
	} {
		_, err := stepfile.LoadTrain(t.Context(), loading, bytes.NewReader(stepfile.Rewrite(t, file, old, new)), store)
		var refused *stepfile.Error
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, stepfile.Damaged, refused.Reason)
	}
}

// The step is also loaded into a strategy with named axes. Its sharding by numbers has the same
// meaning there.
func TestAStepWithoutNamedAxesIsSavedAsBefore(t *testing.T) {
	sys := plugintest.System(t, 4)
	file, store, want := savedStep(t, sys)
	assert.NotContains(t, string(file), "logical_axes")
	opts := strategytest.AnnotatedOptions()
	opts.LogicalAxes = strategytest.Axes("model")
	loaded, err := stepfile.LoadTrain(t.Context(), strategytest.On(t, sys, opts), bytes.NewReader(file), store)
	require.NoError(t, err)
	assert.Equal(t, want, strategytest.Losses(t, loaded, 3, 8))
}
