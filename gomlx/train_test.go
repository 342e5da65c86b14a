package gomlx_test

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// losses trains a model with GoMLX's own trainer, and returns the losses of its steps.
func losses(t testing.TB, b compute.Backend, steps int) []float64 {
	t.Helper()
	const rows, width = 16, 8
	rng := rand.New(rand.NewSource(1))
	xs, ys := make([]float32, rows*width), make([]float32, rows)
	for i := range xs {
		xs[i] = rng.Float32()*2 - 1
	}
	for i := range ys {
		for k := range width {
			ys[i] += xs[i*width+k] * float32(k-3)
		}
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	body := func(scope *model.Scope, _ any, inputs []*graph.Node) []*graph.Node {
		x := layers.Dense(scope.In("a"), inputs[0], true, 32)
		x = norm.BatchNorm(scope.In("bn"), x, -1).Done()
		x = graph.Tanh(x)
		x = layers.DropoutStatic(scope.In("drop"), x, 0.25)
		return []*graph.Node{layers.Dense(scope.In("b"), x, true, 1)}
	}
	trainer := train.NewTrainer(b, store, body, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.02).Done(), nil,
		nil)
	var all []float64
	for range steps {
		metrics, err := trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(xs, rows,
			width)},
			Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(ys, rows, 1)}})
		require.NoError(t, err)
		all = append(all, float64(tensors.ToScalar[float32](metrics[0])))
	}
	return all
}

func TestTrainerGivesTheLossesOfOneDevice(t *testing.T) {
	want := losses(t, newBackend(t, shape{"1x1", 1, 1}), 5)
	for _, over := range shapesOfMesh[1:] {
		t.Run(over.name, func(t *testing.T) {
			got := losses(t, newBackend(t, over), 5)
			assert.InDeltaSlice(t, want, got, 1e-4)
		})
	}
	t.Log(want)
}

// A program over the global batch treats rows as one device does, on any number of replicas: rows that
// do not match are GoMLX's error, and one row is broadcast.
func TestDifferentRowsAreTreatedAsOnOneDevice(t *testing.T) {
	run := func(b compute.Backend, rows int) (float32, error) {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(42))
		body := func(scope *model.Scope, _ any, inputs []*graph.Node) []*graph.Node {
			return []*graph.Node{layers.Dense(scope.In("a"), inputs[0], true, 1)}
		}
		mean := func(labels, predictions []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(graph.Sub(predictions[0], labels[0])))
		}
		trainer := train.NewTrainer(b, store, body, mean, optimizer.Adam().Done(), nil, nil)
		column := func(n int) []*tensors.Tensor {
			return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(slices.Repeat([]float32{0.5}, n), n, 1)}
		}
		metrics, err := trainer.TrainStep(train.Batch{Inputs: column(16), Labels: column(rows)})
		if err != nil {
			return 0, err
		}
		return tensors.ToScalar[float32](metrics[0]), nil
	}
	one := newBackend(t, alone)
	want, err := run(one, 1)
	require.NoError(t, err)
	for _, over := range []shape{alone, {"8x1", 8, 1}} {
		b := newBackend(t, over)
		got, err := run(b, 1)
		require.NoError(t, err)
		assert.InDelta(t, want, got, 1e-6)
		_, err = run(b, 8)
		assert.Error(t, err, over.name)
	}
}
