package train_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// normalised returns a model with two batch normalizations.
func normalised(p int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := norm.BatchNorm(rc.Scope("first"), in[0], -1).Momentum(0.7).Done()
		h := logical.Split(layers.Dense(rc.Scope("hidden"), x, true, 8), 1, p)
		h = norm.BatchNorm(rc.Scope("second"), graph.Tanh(h), -1).Momentum(0.7).Done()
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("out"), h, true, 1), in[1])))
	}
}

// rowsFrom returns the given rows of a batch.
func rowsFrom(t *testing.T, batch []any, rows []int) (cut []any) {
	t.Helper()
	for _, x := range batch {
		of := x.(*tensors.Tensor)
		width := of.Shape().Dimensions[1]
		flat, err := tensors.CopyFlatData[float32](of)
		require.NoError(t, err)
		var some []float32
		for _, r := range rows {
			some = append(some, flat[r*width:(r+1)*width]...)
		}
		cut = append(cut, tensors.FromFlatDataAndDimensions(some, len(rows), width))
	}
	return cut
}

// microbatchesOf returns the microbatches of a step, in order. Each has the same rows of every
// replica's part.
func microbatchesOf(t *testing.T, batch []any, replicas, n int) (all [][]any) {
	t.Helper()
	rows := batch[0].(*tensors.Tensor).Shape().Dimensions[0] / replicas
	size := (rows + n - 1) / n
	for first := 0; first < rows; first += size {
		var of []int
		for r := range replicas {
			for i := first; i < min(first+size, rows); i++ {
				of = append(of, r*rows+i)
			}
		}
		all = append(all, rowsFrom(t, batch, of))
	}
	return all
}

// Batch normalization normalizes each microbatch with its own mean and variance, and updates its
// moving averages for each microbatch, as a loop over batches of that size does. The loss is the
// mean of the microbatches' losses.
func TestBatchNormalisationInMicrobatches(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct{ r, p, rows, n int }{{1, 1, 32, 4}, {8, 1, 32, 2}, {4, 2, 32, 4}, {2, 4, 32, 4},
		{1, 1, 14, 4}} {
		t.Run(fmt.Sprintf("%dx%d, %d rows in %d", c.r, c.p, c.rows, c.n), func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{Replicas: c.r, LogicalDevices: c.p})
			of := make([]int, c.rows)
			for i := range of {
				of[i] = i
			}
			batch := rowsFrom(t, rowsOf(1)[0], of)
			small := microbatchesOf(t, batch, c.r, c.n)
			require.Len(t, small, c.n)
			got := trainOn(t, s, optimizer.Adam().Done(), normalised(c.p), train.Options{Accumulate: c.n}, batch)

			// Run them one after another with constant weights.
			sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(1e-12).Done()
			still := trainOn(t, s, sgd, normalised(c.p), train.Options{}, small...)
			for _, layer := range []string{"first", "second"} {
				for _, name := range []string{"mean", "variance", "avg_weight"} {
					path := "/" + layer + "/batch_normalization/" + name
					require.Contains(t, still.values, path)
					assert.InDeltaSlice(t, strategytest.Numbers(t, still.values[path]), strategytest.Numbers(t, got.values[path]),
						1e-5, path)
				}
				assert.Equal(t, float64(c.n), strategytest.Numbers(t, got.values["/"+layer+"/batch_normalization/avg_weight"])[0])
			}

			loss := 0.0
			for i, m := range small {
				loss += still.losses[i] * float64(m[0].(*tensors.Tensor).Shape().Dimensions[0]) / float64(c.rows)
			}
			assert.InDelta(t, loss, got.losses[0], 1e-5)
		})
	}
}

func isAverage(path string) bool {
	for _, layer := range []string{"first", "second"} {
		for _, name := range []string{"mean", "variance", "avg_weight"} {
			if path == "/"+layer+"/batch_normalization/"+name {
				return true
			}
		}
	}
	return false
}

// The losses and weights depend only on the total number of microbatches, not on their distribution
// over the replicas.
func TestBatchNormalisationInAsManyMicrobatches(t *testing.T) {
	sys := plugintest.System(t, 8)
	var want trained
	for i, c := range [][3]int{{1, 1, 8}, {8, 1, 1}, {4, 2, 2}, {2, 4, 4}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: c[0], LogicalDevices: c[1]})
		sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.05).Done()
		got := trainOn(t, s, sgd, normalised(c[1]), train.Options{Accumulate: c[2]}, rowsOf(2)...)
		for path := range got.values {
			if isAverage(path) { // updated once for each microbatch of a replica
				delete(got.values, path)
			}
		}
		if i == 0 {
			want = got
			continue
		}
		want.equals(t, got, 1e-4)
	}
}
