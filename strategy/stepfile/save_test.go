package stepfile_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestNoStepIsNotSaved(t *testing.T) {
	var refused *stepfile.Error
	require.ErrorAs(t, stepfile.Save(t.Context(), io.Discard, nil), &refused)
	assert.Equal(t, stepfile.Unsupported, refused.Reason)
}

func mustSave(t *testing.T, c *strategy.CompiledStep) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &b, c))
	return b.Bytes()
}

func TestAStepFromACacheIsSavedWhole(t *testing.T) {
	ctx := t.Context()
	sys := plugintest.System(t, 4)
	programs, err := cache.Open(t.TempDir(), cache.Options{SigningKey: make([]byte, 32)})
	require.NoError(t, err)
	opts := strategytest.AnnotatedOptions()
	opts.Compiler = programs
	for range 2 { // a miss, then a hit
		strat, err := strategy.New(sys, opts)
		require.NoError(t, err)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(2),
			train.Options{}))
		x, y := strategytest.Batch(0)
		compiled, err := step.Compiled(ctx, x, y)
		require.NoError(t, err)
		file := mustSave(t, compiled)
		there, err := strategy.New(sys, strategytest.AnnotatedOptions())
		require.NoError(t, err)
		loaded, err := stepfile.LoadTrain(ctx, there, bytes.NewReader(file), store)
		require.NoError(t, err)
		assert.Equal(t, strategytest.Losses(t, step, 0, 2), strategytest.Losses(t, loaded, 0, 2))
		require.NoError(t, strat.Close())
		require.NoError(t, there.Close())
	}
	assert.Equal(t, int64(1), int64(programs.Stats().Hits))
}

func TestVariablesOfOneNameCannotBeSaved(t *testing.T) {
	ctx := t.Context()
	strat := strategytest.New(t, 2, 1)
	var both []*strategy.Variable
	for range 2 {
		v, err := strat.NewVariable(ctx, []float32{1}, strategy.VariableOptions{Name: "counter"})
		require.NoError(t, err)
		both = append(both, v)
	}
	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(rc.Read(both[0]), rc.Read(both[1]))}
	}, strategy.FunctionOptions{})
	compiled, err := f.Compiled(ctx)
	require.NoError(t, err)
	err = stepfile.Save(t.Context(), &bytes.Buffer{}, compiled)
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Variable, refused.Reason)
	assert.Equal(t, "counter", refused.Variable)
}
