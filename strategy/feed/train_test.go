package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"tpustrategy/logical"
	"tpustrategy/strategy"
	"tpustrategy/strategy/feed"
	"tpustrategy/strategy/input"
)

// digits is a dataset of n random images of 28x28 and their classes, and the same
// as slices.
func digits(n int) (ds input.Dataset, x []float32, y []int32) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, y = make([]float32, n*784), make([]int32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i] = int32(rng.IntN(10))
	}
	images, err := input.NewTensor(x, n, 784)
	if err != nil {
		panic(err)
	}
	classes, err := input.NewTensor(y, n, 1)
	if err != nil {
		panic(err)
	}
	return input.FromSlices(input.Tuple(input.Leaf(images), input.Leaf(classes))), x, y
}

// mlp is a training step of 784-hidden-hidden-10 with plain SGD.
func mlp(s *strategy.TPUStrategy, hidden int) *strategy.TrainStep {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
	return s.TrainStep(store, sgd, func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := in[0]
		for _, layer := range []string{"first", "second"} {
			h = layers.Dense(rc.Scope(layer), h, true, hidden)
			h = graph.Max(h, graph.ZerosLike(h))
		}
		logits := layers.Dense(rc.Scope("output"), h, true, 10)
		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
	})
}

func TestFedTrainingIsTheSameAsOnHostBatches(t *testing.T) {
	ctx := context.Background()
	ds, x, y := digits(64)
	losses := func(run func(step *strategy.TrainStep) []float64) []float64 {
		return run(mlp(newStrategy(t, 4, 1), 32))
	}
	want := losses(func(step *strategy.TrainStep) (all []float64) {
		for i := range 8 {
			xs := tensors.FromFlatDataAndDimensions(x[i*8*784:(i+1)*8*784], 8, 784)
			l, err := step.Run(ctx, xs, tensors.FromFlatDataAndDimensions(y[i*8:(i+1)*8], 8, 1))
			require.NoError(t, err)
			value, err := l.Float64(ctx)
			require.NoError(t, err)
			all = append(all, value)
		}
		return all
	})
	s := newStrategy(t, 4, 1)
	f := open(t, s, ds.Batch(8, true), feed.Options{})
	step := mlp(s, 32)
	var got []float64
	for batch, err := range f.All(ctx) {
		require.NoError(t, err)
		l, err := step.Run(ctx, batch.Args()...)
		require.NoError(t, err)
		value, err := l.Float64(ctx)
		require.NoError(t, err)
		got = append(got, value)
	}
	require.Equal(t, want, got)
}

// BenchmarkFedStep compares the step on fed batches with the step on data that
// stays on the devices, in turns: 784-512-512-10, batch 256, 8 replicas, SGD. One
// feed reads batches that are in memory, the other puts each together from its rows.
// It prints a JSON line for each.
func BenchmarkFedStep(b *testing.B) {
	ctx := context.Background()
	const rows, turns, perTurn = 256, 17, 24
	s := newStrategy(b, 8, 1)
	ds, x, y := digits(rows * 16)
	step := mlp(s, 512)
	resident := make([]any, 2)
	var err error
	resident[0], err = s.SplitBatch(ctx, tensors.FromFlatDataAndDimensions(x[:rows*784], rows, 784), logical.Annotation{})
	require.NoError(b, err)
	resident[1], err = s.SplitBatch(ctx, tensors.FromFlatDataAndDimensions(y[:rows], rows, 1), logical.Annotation{})
	require.NoError(b, err)
	defer runtime.KeepAlive(resident) // a bound step holds their memory, not them
	bound, err := step.Bind(ctx, resident...)
	require.NoError(b, err)
	defer bound.Close()
	run := func(launch func() (strategy.Value, error)) float64 {
		start := time.Now()
		var l strategy.Value
		for range perTurn {
			if l, err = launch(); err != nil {
				b.Fatal(err)
			}
		}
		if err := l.Ready(ctx); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start).Nanoseconds()) / 1e3 / perTurn
	}
	launches := []func() (strategy.Value, error){func() (strategy.Value, error) {
		if err := bound.Launch(ctx); err != nil {
			return nil, err
		}
		return bound.Results()[0], nil
	}}
	names := []string{"mlp_step_prefetched", "mlp_step_prefetched_rows"}
	for _, ds := range []input.Dataset{ds.Batch(rows, true).Cache().Repeat(-1), ds.Batch(rows, true).Repeat(-1)} {
		f := open(b, s, ds, feed.Options{})
		launches = append(launches, func() (strategy.Value, error) {
			batch, err := f.Next(ctx)
			if err != nil {
				return nil, err
			}
			return step.Run(ctx, batch.Args()...)
		})
	}
	for b.Loop() {
		// Ratios are taken turn by turn, so that other load counts on both sides.
		times, ratios := make([][]float64, len(launches)), make([][]float64, len(launches))
		for turn := range turns + 1 {
			for i, launch := range launches {
				if t := run(launch); turn > 0 { // the first is to warm up
					times[i] = append(times[i], t)
					ratios[i] = append(ratios[i], t/times[0][turn-1])
				}
			}
		}
		for i, name := range names {
			row := map[string]any{"name": name, "devices": 8, "us": median(times[i+1]), "floor_us": median(times[0]), "ratio": median(ratios[i+1])}
			line, err := json.Marshal(row)
			require.NoError(b, err)
			fmt.Println(string(line))
			b.ReportMetric(median(ratios[i+1]), name+"-ratio")
		}
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
