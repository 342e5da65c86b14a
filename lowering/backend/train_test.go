package backend_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/backend"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// regression is a model of one dense layer.
func regression(scope *model.Scope, _ any, inputs []*graph.Node) []*graph.Node {
	return []*graph.Node{layers.DenseWithBias(scope.In("dense"), inputs[0], 1)}
}

// TestGoMLXTrainsUnmodified fits a line with GoMLX's own trainer and loop.
func TestGoMLXTrainsUnmodified(t *testing.T) {
	for name, opts := range map[string]backend.Options{"donation frees": {}, "donation aliases": {AliasDonated: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, opts)
			random := rand.New(rand.NewPCG(1, 2))
			xs, ys := make([][]float32, 256), make([][]float32, 256)
			for i := range xs {
				xs[i] = []float32{random.Float32(), random.Float32()}
				ys[i] = []float32{3*xs[i][0] - 2*xs[i][1] + 1}
			}
			ds, err := dataset.InMemoryFromData(b, "line", []any{xs}, []any{ys})
			require.NoError(t, err)
			ds.RandomWithReplacement().Infinite(true).BatchSize(32, false).WithRand(newSource())

			store := model.NewStore()
			require.NoError(t, store.SetRNGStateFromSeed(7))
			store.SetParam(model.ParamInitialSeed, int64(7))
			trainer := train.NewTrainer(b, store, train.ModelFn(regression), loss.MeanSquaredError,
				optimizer.Adam().LearningRate(0.05).Done(), nil, nil)
			loop := train.NewLoop(trainer)
			metrics, err := loop.RunSteps(ds, 800)
			require.NoError(t, err)
			assert.Less(t, metrics[0].Value().(float32), float32(1e-3))

			weights := store.GetVariable("/dense/dense/weights")
			require.NotNil(t, weights)
			value, err := weights.Value()
			require.NoError(t, err)
			got := value.Value().([][]float32)
			assert.InDelta(t, 3, got[0][0], 0.1)
			assert.InDelta(t, -2, got[1][0], 0.1)
			store.Finalize()
		})
	}
}

// TestGoMLXExecRunsOnIt covers graph.Exec, which traces once per shape.
func TestGoMLXExecRunsOnIt(t *testing.T) {
	b := newBackend(t)
	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Softmax(graph.MulScalar(x, 2)) })
	require.NoError(t, err)
	defer exec.Finalize()
	for _, n := range []int{2, 3} {
		out, err := exec.Call1(tensors.FromShape(shapes.Make(dtypes.Float32, n)))
		require.NoError(t, err)
		for _, v := range out.Value().([]float32) {
			assert.InDelta(t, 1/float64(n), v, 1e-6)
		}
	}
}

// findOptions looks for plugins as the real environment has them.
func findOptions() pjrt.FindOptions {
	cache, _ := os.UserCacheDir()
	return pjrt.FindOptions{Getenv: os.Getenv, GOARCH: runtime.GOARCH, UserCacheDir: cache, Stat: os.Stat}
}

func TestRegisteredBackendsAreMadeByName(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	backend.Register("tpustrategy-test", findOptions())
	for _, config := range []string{"tpustrategy-test:" + path + ",devices=2", "tpustrategy-test:cpu,devices=2,precision=highest"} {
		b, err := compute.NewWithConfig(config)
		require.NoError(t, err, config)
		assert.Equal(t, "tpustrategy-test", b.Name())
		assert.Equal(t, 2, b.NumDevices())
		assert.Equal(t, pair[0].flat, flat(t, buffer(t, b, pair[0])))
		require.NoError(t, b.(*backend.Backend).Close(), "its client is its own, and has nothing left open")
	}
	for config, want := range map[string]string{
		"gpu":                 "is no plugin",
		"/no/such/plugin.so":  "/no/such/plugin.so",
		"cpu,devices=1000000": "devices",
	} {
		_, err := compute.NewWithConfig("tpustrategy-test:" + config)
		assert.ErrorContains(t, err, want)
	}
}

func ExampleNew() {
	plugin, err := openCPU()
	if err != nil {
		fmt.Println("no plugin here:", err)
		return
	}
	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	b, err := backend.New(client, backend.Options{})
	if err != nil {
		panic(err)
	}
	defer b.Close()

	double, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Add(x, x) })
	if err != nil {
		panic(err)
	}
	out, err := double.Call1([]float32{1, 2})
	if err != nil {
		panic(err)
	}
	fmt.Println(out.Value())
	// Output:
	// [2 4]
}
