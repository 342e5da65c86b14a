//go:build cgo

package docs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestThePiecesOfTheTensorFlowPageRun runs the functions that from-tensorflow.md and
// tensorflow-recipes.md show.
func TestThePiecesOfTheTensorFlowPageRun(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx, folder := t.Context(), t.TempDir()
	pixels, labels := make([]float32, 256*16), make([]int32, 256)
	for i := range labels {
		labels[i] = int32(i % 10)
		pixels[16*i+i%10] = 1
	}
	x, err := input.NewTensor(pixels, 256, 16)
	require.NoError(t, err)
	y, err := input.NewTensor(labels, 256, 1)
	require.NoError(t, err)
	digits := input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y)))

	require.NoError(t, setUp(ctx, func(strat *strategy.TPUStrategy) error {
		store, err := fitted(ctx, strat, digits, digits.Take(100), folder)
		require.NoError(t, err)
		history, err := os.ReadFile(filepath.Join(folder, "history.csv"))
		require.NoError(t, err)
		assert.Contains(t, string(history), "held/accuracy")

		require.NoError(t, checkpointed(ctx, strat, store, 12, filepath.Join(folder, "own")))
		held := strategytest.OK(train.NewEvaluation(strat, store, classifier,
			train.Options{Metrics: []train.Metric{train.Reported("accuracy")}}))
		require.NoError(t, evaluated(ctx, strat, held, digits.Take(100)))

		path := filepath.Join(folder, "scores.step")
		require.NoError(t, savedModel(ctx, strat, store, path))
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		scores, err := stepfile.Load(ctx, strat, file, store)
		require.NoError(t, err)
		_, err = scores.Run(ctx, make64x16())
		require.NoError(t, err)

		step := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{placed(rc, noisy(rc, in[0]))}
		}, strategy.FunctionOptions{Name: "placed", Store: model.NewStore(), SplitBatch: true, Training: true})
		_, err = step.Compiled(ctx, shapes.Make(dtypes.Float32, 8, 16))
		return err
	}))
}

func make64x16() [][]float32 {
	rows := make([][]float32, 64)
	for i := range rows {
		rows[i] = make([]float32, 16)
	}
	return rows
}
