package gomlx_test

import (
	"errors"
	"iter"
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
)

// The tests of this file use GoMLX's Trainer, Loop and datasets on one device, on GoMLX's Go
// backend, and on meshes over which the rules shard a layer.

// columns splits the features of the hidden layer.
var columns = logical.Rules{logical.Match(`hidden/dense/(weights|biases)`, logical.SplitOverAxes("", "logical")),
	logical.Match(`hidden/dense/biases`, logical.SplitOverAxes("logical"))}

// onMeshes runs a program on one device, in Go, and on meshes, and compares what it returns.
func onMeshes(t *testing.T, meshes []shape, program func(t *testing.T, b compute.Backend) []float64) {
	t.Helper()
	want := program(t, newBackend(t, shape{"1x1", 1, 1}))
	plain, err := gobackend.New("")
	require.NoError(t, err)
	t.Run("go", func(t *testing.T) { assert.InDeltaSlice(t, want, program(t, plain), 1e-4) })
	for _, over := range meshes {
		t.Run(over.name, func(t *testing.T) {
			assert.InDeltaSlice(t, want, program(t, newBackend(t, over, gomlx.Options{Rules: columns})), 1e-4)
		})
	}
}

// table returns rows of data for a regression.
func table(rows int) (x, y [][]float32) {
	random := rand.New(rand.NewSource(3))
	for range rows {
		row := make([]float32, 8)
		var sum float32
		for i := range row {
			row[i] = random.Float32() - 0.5
			sum += row[i] * float32(i)
		}
		x, y = append(x, row), append(y, []float32{sum})
	}
	return x, y
}

// inMemory is a table as GoMLX's dataset in memory.
func inMemory(t testing.TB, b compute.Backend, rows int) *dataset.InMemoryDataset {
	t.Helper()
	x, y := table(rows)
	ds, err := dataset.InMemoryFromData(b, "table", []any{x}, []any{y})
	require.NoError(t, err)
	t.Cleanup(ds.FinalizeAll)
	return ds
}

// perceptron is a model of two layers, whose first values are in the store.
func perceptron(scope *model.Scope, x *graph.Node) *graph.Node {
	x = graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 16))
	return layers.Dense(scope.In("output"), x, true, 1)
}

// started returns a store with the first values of the model, which do not depend on a backend.
func started() *model.Store {
	store := model.NewStore()
	random := rand.New(rand.NewSource(5))
	value := func(path string, rows, columns int) {
		flat := make([]float32, rows*columns)
		for i := range flat {
			flat[i] = random.Float32() - 0.5
		}
		store.VariableWithValue(path, tensors.FromFlatDataAndDimensions(flat, rows, columns))
	}
	value("/hidden/dense/weights", 8, 16)
	value("/output/dense/weights", 16, 1)
	return store
}

// all returns the elements of variables that are numbers of float32, one after another.
func all(t testing.TB, store *model.Store, paths ...string) (out []float64) {
	t.Helper()
	for _, path := range paths {
		v := store.GetVariable(path)
		require.NotNil(t, v, path)
		value, err := v.Value()
		require.NoError(t, err)
		require.Equal(t, dtypes.Float32, value.DType())
		require.NoError(t, tensors.ConstFlatData(value, func(flat []float32) {
			for _, x := range flat {
				out = append(out, float64(x))
			}
		}))
	}
	return out
}

var parameters = []string{"/hidden/dense/weights", "/hidden/dense/biases", "/output/dense/weights",
	"/output/dense/biases"}

// follow keeps the loss of each step.
func follow(loop *train.Loop, losses *[]float64) {
	loop.OnStep("losses", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		*losses = append(*losses, float64(metrics[0].Value().(float32)))
		return nil
	})
}

func TestGradientsAreAccumulated(t *testing.T) {
	onMeshes(t, []shape{{"8x1", 8, 1}, {"2x4", 2, 4}}, func(t *testing.T, b compute.Backend) (out []float64) {
		store := started()
		trainer := train.NewTrainer(b, store, perceptron, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.02).Done(),
			nil, nil)
		require.NoError(t, trainer.AccumulateGradients(3))
		loop := train.NewLoop(trainer)
		follow(loop, &out)
		_, err := loop.RunSteps(inMemory(t, b, 32).BatchSize(16, true).Infinite(true), 6)
		require.NoError(t, err)
		require.EqualValues(t, 2, optimizer.GetGlobalStep(store))
		return append(out, all(t, store, parameters...)...)
	})
}

// TestDatasetsWithAPartialBatch trains over epochs of batches of 16, 16 and 5 rows, and evaluates
// over batches of 16, 16 and 5.
func TestDatasetsWithAPartialBatch(t *testing.T) {
	onMeshes(t, []shape{{"8x1", 8, 1}, {"2x4", 2, 4}}, func(t *testing.T, b compute.Backend) (out []float64) {
		store := started()
		size := metric.NewMeanMetric("Mean Output", "#out", "mean", func(_ *model.Scope, _,
			predictions []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(predictions[0])
		}, nil)
		trainer := train.NewTrainer(b, store, perceptron, loss.MeanSquaredError,
			optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done(), nil, []metric.Interface{size})
		loop := train.NewLoop(trainer)
		follow(loop, &out)
		_, err := loop.RunEpochs(inMemory(t, b, 37).BatchSize(16, false).Shuffle().WithRand(rand.New(rand.NewSource(2))), 2)
		require.NoError(t, err)
		require.Len(t, out, 6)
		metrics, err := trainer.Eval(inMemory(t, b, 37).BatchSize(16, false))
		require.NoError(t, err)
		for _, m := range metrics {
			out = append(out, float64(m.Value().(float32)))
		}
		return append(out, all(t, store, parameters...)...)
	})
}

// rowByRow yields a table's rows.
type rowByRow struct{ x, y [][]float32 }

func (rowByRow) Name() string { return "rows" }

func (d rowByRow) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range d.x {
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue(d.x[i])},
				Labels: []*tensors.Tensor{tensors.FromValue(d.y[i])}}, nil) {
				return
			}
		}
	}
}

// TestDatasetsMadeOfDatasets stacks rows on the backend, maps them on the host in parallel, and
// reads ahead.
func TestDatasetsMadeOfDatasets(t *testing.T) {
	onMeshes(t, []shape{{"4x2", 4, 2}}, func(t *testing.T, b compute.Backend) (out []float64) {
		x, y := table(21)
		ds := dataset.Batch(b, rowByRow{x, y}, 8, true, false)
		ds = dataset.Map(b, ds, func(batch dataset.GraphBatch) dataset.GraphBatch {
			batch.Inputs[0] = graph.MulScalar(batch.Inputs[0], 2)
			return batch
		})
		ds = dataset.ParallelMapOnHost(ds, func(batch train.Batch) train.Batch {
			flat := tensors.MustCopyFlatData[float32](batch.Labels[0])
			for i := range flat {
				flat[i] /= 2
			}
			batch.Labels[0] = tensors.FromFlatDataAndDimensions(flat, batch.Labels[0].Shape().Dimensions...)
			return batch
		}).WithParallelism(3).WithPreserveOrder(true)
		ds = dataset.Buffer(ds, 2)
		store := started()
		trainer := train.NewTrainer(b, store, perceptron, loss.MeanSquaredError,
			optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done(), nil, nil)
		loop := train.NewLoop(trainer)
		follow(loop, &out)
		_, err := loop.RunEpochs(ds, 1)
		require.NoError(t, err)
		require.Len(t, out, 3)
		return append(out, all(t, store, parameters...)...)
	})
}

// TestCheckpointsChangeMeshes saves under one mesh and resumes under another.
func TestCheckpointsChangeMeshes(t *testing.T) {
	run := func(b compute.Backend, dir string, steps int) []float64 {
		store := started()
		handler, err := checkpoint.Build(store).Dir(dir).Keep(1).Done()
		require.NoError(t, err)
		trainer := train.NewTrainer(b, store, perceptron, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.02).Done(),
			nil, nil)
		_, err = train.NewLoop(trainer).RunToGlobalStep(inMemory(t, b, 16).BatchSize(16, true).Infinite(true), steps)
		require.NoError(t, err)
		require.NoError(t, handler.Save())
		return all(t, store, parameters...)
	}
	rules := gomlx.Options{Rules: columns}
	want := run(newBackend(t, shape{"1x1", 1, 1}), t.TempDir(), 6)
	dir := t.TempDir()
	run(newBackend(t, shape{"4x2", 4, 2}, rules), dir, 3)
	assert.InDeltaSlice(t, want, run(newBackend(t, shape{"2x4", 2, 4}, rules), dir, 6), 1e-5)
}

// errEnough stops a loop.
var errEnough = errors.New("enough")

// TestTheRestOfATraining stops early, sets the averages of batch normalisation, freezes a layer,
// and uses the store from other programs meanwhile.
func TestTheRestOfATraining(t *testing.T) {
	onMeshes(t, []shape{{"4x2", 4, 2}}, func(t *testing.T, b compute.Backend) (out []float64) {
		store := started()
		body := func(scope *model.Scope, x *graph.Node) *graph.Node {
			x = layers.Dense(scope.In("hidden"), x, true, 16)
			x = graph.Tanh(norm.BatchNorm(scope.In("norm"), x, -1).UseBackendInference(false).Done())
			return layers.Dense(scope.In("output"), x, true, 1)
		}
		trainer := train.NewTrainer(b, store, body, loss.MeanSquaredError,
			optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done(), nil, nil)
		ds := inMemory(t, b, 32).BatchSize(16, true).Infinite(true)
		loop := train.NewLoop(trainer)
		follow(loop, &out)
		loop.OnStep("enough", 1, func(*train.Loop, []*tensors.Tensor) error {
			if len(out) == 3 {
				return errEnough
			}
			return nil
		})
		_, err := loop.RunSteps(ds, 100)
		require.ErrorIs(t, err, errEnough)
		// Another program over the store: it reads a variable that the rules split, and sets one.
		sum, err := model.CallOnce(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
			w := store.GetVariable("/hidden/dense/weights")
			w.SetNodeValue(graph.MulScalar(w.NodeValue(g), 0.5))
			return graph.ReduceAllSum(w.NodeValue(g))
		})
		require.NoError(t, err)
		out = append(out, float64(sum.Value().(float32)))
		frozen := all(t, store, "/hidden/dense/weights")
		for _, path := range parameters[:2] {
			store.GetVariable(path).SetTrainable(false)
		}
		trainer.ResetComputationGraphs()
		_, err = trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue(numbersOf(t))},
			Labels: []*tensors.Tensor{tensors.FromValue(make([]float32, 16))}})
		require.Error(t, err, "labels of another rank")
		_, err = train.NewLoop(trainer).RunSteps(ds, 2)
		require.NoError(t, err)
		require.Equal(t, frozen, all(t, store, "/hidden/dense/weights"))
		store.SetParam(norm.AveragesUpdatesTriggerParam, true)
		updated, err := norm.UpdateBatchNormAverages(trainer, inMemory(t, b, 32).BatchSize(16, true))
		require.NoError(t, err)
		require.True(t, updated)
		metrics, err := trainer.Eval(inMemory(t, b, 21).BatchSize(16, false))
		require.NoError(t, err)
		out = append(out, float64(metrics[0].Value().(float32)))
		return append(out, all(t, store, "/output/dense/weights", "/norm/batch_normalization/mean",
			"/norm/batch_normalization/variance")...)
	})
}

func numbersOf(t testing.TB) [][]float32 {
	t.Helper()
	x, _ := table(16)
	return x
}

// TestAPartialBatchIsReported checks the warning about a batch that is not sharded.
func TestAPartialBatchIsReported(t *testing.T) {
	var said []*gomlx.Explanation
	b, err := gomlx.New(plugintest.System(t, 8), gomlx.Options{Compiler: plugintest.Programs(t),
		Explain: func(e *gomlx.Explanation) { said = append(said, e) }})
	require.NoError(t, err)
	defer b.Close()
	x, _ := table(5)
	_, err = graph.CallOnce(b, func(x *graph.Node) *graph.Node { return graph.ReduceAllSum(x) }, x)
	require.NoError(t, err)
	require.Len(t, said, 1)
	assert.Equal(t, said[0].Parameters[0].Shape, said[0].Parameters[0].Shard)
	assert.Regexp(t, `5.*8`, said[0].Parameters[0].UnshardedReason)
}
