package train_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestTrainingOverNamedAxesIsTheSameOnEveryMesh(t *testing.T) {
	const steps = 6
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	var wantLosses []float64
	var want map[string]*tensors.Tensor
	for _, mesh := range []struct {
		replicas int
		axes     []string
	}{{1, nil}, {1, []string{"model", "sequence", "expert"}}, {2, []string{"model", "sequence"}}, {2, []string{"expert", "model"}}, {4, []string{"model"}}} {
		t.Run(fmt.Sprint(mesh), func(t *testing.T) {
			strat := strategytest.On(t, sys, strategytest.NamedOptions(mesh.replicas, strategytest.Axes(mesh.axes...)...))
			store := strategytest.SeededStore()
			step := train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named)
			var losses []float64
			batches := make([][]any, steps)
			for i := range batches {
				x, y := strategytest.NamedBatch(i)
				batches[i] = []any{x, y}
				if looped := mesh.replicas == 2 && mesh.axes[0] == "model"; i < steps-2 || !looped {
					loss, err := step.Run(ctx, x, y)
					require.NoError(t, err)
					losses = append(losses, strategytest.Float64(t, loss))
				}
			}
			if len(losses) < steps {
				loss, err := step.RunSteps(ctx, batches[steps-2:]...)
				require.NoError(t, err)
				losses = append(losses, math.NaN(), strategytest.Float64(t, loss))
			}
			got := map[string]*tensors.Tensor{}
			for _, v := range strat.Variables(store).All() {
				value, err := v.Value(ctx)
				require.NoError(t, err)
				got[v.Path()] = value
			}
			if want == nil {
				wantLosses, want = losses, got
				require.Less(t, losses[len(losses)-1], losses[0])
				return
			}
			for i := range losses {
				if math.IsNaN(losses[i]) {
					continue // in the loop
				}
				require.InDelta(t, wantLosses[i], losses[i], 1e-5*math.Abs(wantLosses[i])+1e-6, "loss of step %d", i)
			}
			require.Len(t, got, len(want))
			for path, value := range want {
				if value.DType() == dtypes.Float32 {
					require.True(t, value.InDelta(got[path], 2e-5), "%s:\n%s\n%s", path, value, got[path])
				}
			}
		})
	}
}

func TestAPartialSplitTakesTheMemoryOfItsParts(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.NamedOptions(1, strategytest.Axes("model", "sequence")...))
	store := strategytest.SeededStore()
	step := train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named)
	x, y := strategytest.NamedBatch(0)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), `sdy.mesh @mesh = <["replica"=1, "model"=2, "sequence"=2]>`)
	_, err = step.Run(ctx, x, y)
	require.NoError(t, err)
	r, err := compiled.Report()
	require.NoError(t, err)
	assert.Equal(t, "Mesh(replica=1, model=2, sequence=2)", r.Mesh)
	copies, sizes := map[string]int{}, map[string][]int{}
	for _, tensor := range r.Tensors {
		if tensor.Role == "variable" {
			copies[tensor.Name], sizes[tensor.Name] = tensor.Copies, tensor.Shard
		}
	}
	assert.Equal(t, 1, copies["/tokens/embeddings"])
	assert.Equal(t, []int{4, 8}, sizes["/tokens/embeddings"])
	assert.Equal(t, 2, copies["/query/dense/weights"])
	assert.Equal(t, []int{8, 4}, sizes["/query/dense/weights"])
	assert.Equal(t, 4, copies["/down/dense/biases"])
	for _, axis := range []string{"model", "sequence"} {
		bytes, _ := r.CollectiveBytes(axis)
		assert.Positive(t, bytes, "%s: %+v", axis, r.Collectives)
	}
	var starts [][]int
	for _, v := range strat.Variables(store).All() {
		if v.Path() == "/query/dense/weights" {
			for _, shard := range v.Shards() {
				starts = append(starts, shard.Start)
			}
		}
	}
	assert.Equal(t, [][]int{{0, 0}, {0, 0}, {0, 4}, {0, 4}}, starts)
}
