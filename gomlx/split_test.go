package gomlx_test

import (
	"maps"
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
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

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

const splitRows, splitWidth = 512, 256

// splitModels are models with the bytes of their gradients.
var splitModels = map[string]struct {
	body      func(*model.Scope, any, []*graph.Node) []*graph.Node
	gradients int64
}{
	"mlp": {func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
		x := in[0]
		for i := range 3 {
			x = graph.Tanh(layers.Dense(scope.In("hidden%d", i), x, true, 128))
		}
		return []*graph.Node{layers.Dense(scope.In("output"), x, true, 1)}
	}, 4 * (256*128 + 128 + 2*(128*128+128) + 128 + 1)},
	"convnet": {func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
		x := graph.Reshape(in[0], -1, 16, 16, 1)
		for i := range 2 {
			x = layers.Convolution(scope.In("conv%d", i), x).Channels(8).KernelSize(3).PadSame().Done()
			x = graph.Tanh(graph.MaxPool(x).Window(2).Done())
		}
		return []*graph.Node{layers.Dense(scope.In("output"), graph.Reshape(x, splitRows, -1), true, 1)}
	}, 4 * (9*8 + 8 + 9*8*8 + 8 + 128 + 1)},
	"embedding": {func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
		words := graph.ConvertDType(graph.MulScalar(graph.Abs(in[0]), 50000), dtypes.Int32)
		x := graph.ReduceMean(layers.Embedding(scope.In("words"), words, dtypes.Float32, 50000, 16, false), 1)
		return []*graph.Node{layers.Dense(scope.In("output"), x, true, 1)}
	}, 4 * (50000*16 + 16 + 1)},
}

// collectives are the kinds of collectives of a program, with the bytes of their results.
func collectives(t *testing.T, x *pjrt.Executable) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, op := range hlotest.Ops(t, x) {
		switch op.Code {
		case "all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "all-reduce-start":
			found[op.Code] += op.Bytes
		}
	}
	return found
}

func trainerOf(b compute.Backend, body func(*model.Scope, any, []*graph.Node) []*graph.Node) *train.Trainer {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	return train.NewTrainer(b, store, body, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.001).Done(), nil, nil)
}

func splitBatch() train.Batch {
	rng := rand.New(rand.NewSource(1))
	x, y := make([]float32, splitRows*splitWidth), make([]float32, splitRows)
	for i := range x {
		x[i] = rng.Float32()
	}
	return train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, splitRows, splitWidth)},
		Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, splitRows, 1)}}
}

// TestTheSplitIsReal compares the memory of a device, as the compiler reports it, with that of a
// single device, and the collectives with the gradients.
func TestTheSplitIsReal(t *testing.T) {
	for name, m := range splitModels {
		t.Run(name, func(t *testing.T) {
			var alone, aloneData int64
			grid := shape{"8x1", 8, 1}
			if name == "embedding" {
				grid = shape{"4x2", 4, 2}
			}
			for _, over := range []shape{{"1x1", 1, 1}, grid} {
				var step *gomlx.CompiledProgram
				b := newBackend(t, over, gomlx.Options{OnCompiled: func(c *gomlx.CompiledProgram) { step = c }})
				_, err := trainerOf(b, m.body).TrainStep(splitBatch())
				require.NoError(t, err)
				stats, err := step.Program.MemoryStats()
				require.NoError(t, err)
				data := stats.Arguments - stats.Alias
				if over.replicas == 1 {
					alone, aloneData = stats.Temp, data
					continue
				}
				batch := int64(4 * (splitRows*splitWidth + splitRows))
				assert.InDelta(t, aloneData-batch+batch/int64(over.replicas), data, 256, "%s: bytes of data", over.name)
				if name != "embedding" { // its gradient is as large as the table on each device
					assert.Less(t, stats.Temp, alone/int64(over.replicas)+2*m.gradients+1024, "%s: bytes of activations", over.name)
				}
				moved := collectives(t, step.Program)
				assert.InDelta(t, m.gradients+4, moved["all-reduce"], 16, "%s: the gradients and the loss, once each", over.name)
				assert.Len(t, moved, 1, "%s: no other collective: %v", over.name, moved)
				if name == "mlp" { // or each device would turn the sums around
					assert.NotContains(t, step.Module.Text, "stablehlo.transpose")
				}
			}
		})
	}
}

// TestNothingIsMovedBetweenSteps trains with variables that are whole on each device and with
// variables that rules split.
func TestNothingIsMovedBetweenSteps(t *testing.T) {
	for name, rules := range map[string]logical.Rules{"no rules": nil, "split": {
		logical.Match("hidden0.*weights", logical.SplitOverAxes("", "logical")), logical.Match("hidden1.*weights",
			logical.SplitOverAxes("logical", "")),
		logical.Match("hidden2.*weights", logical.SplitOverAxes("replica", "")),
	}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, shape{"4x2", 4, 2}, gomlx.Options{Rules: rules})
			trainer := trainerOf(b, splitModels["mlp"].body)
			var losses []float32
			var moved int64
			for step := range 4 {
				metrics, err := trainer.TrainStep(splitBatch())
				require.NoError(t, err)
				losses = append(losses, tensors.ToScalar[float32](metrics[0]))
				if step > 0 { // the first values come as the program that makes them gives them
					assert.Equal(t, moved, gomlx.Moved(b), "step %d", step)
				}
				moved = gomlx.Moved(b)
			}
			assert.Less(t, losses[3], losses[0])
			assert.Equal(t, rules != nil, moved > 0, "first values are moved to where rules have them")
		})
	}
}

// TestRowsOfATableAreLookedUpWithoutACollective runs GoMLX's dataset in memory.
func TestRowsOfATableAreLookedUpWithoutACollective(t *testing.T) {
	const examples, width, batch = 64, 3, 16
	data := make([]float32, examples*width)
	for i := range data {
		data[i] = float32(i)
	}
	for _, over := range shapesOfMesh {
		t.Run(over.name, func(t *testing.T) {
			programs := map[string]*gomlx.CompiledProgram{}
			b := newBackend(t, over, gomlx.Options{OnCompiled: func(c *gomlx.CompiledProgram) { programs[c.Module.Name] = c }})
			ds, err := dataset.InMemoryFromData(b, "rows", []any{tensors.FromFlatDataAndDimensions(data, examples, width)}, nil)
			require.NoError(t, err)
			ds.BatchSize(batch, true)
			seen, step := 0, 0
			for got, err := range ds.Iter() {
				require.NoError(t, err)
				rows := tensors.MustCopyFlatData[float32](got.Inputs[0])
				assert.Equal(t, data[step*batch*width:(step+1)*batch*width], rows)
				seen += len(rows)
				step++
			}
			require.Equal(t, examples*width, seen)
			require.Len(t, programs, 1, "%v", maps.Keys(programs))
			for _, p := range programs {
				assert.Empty(t, collectives(t, p.Program))
			}
			assert.Zero(t, gomlx.Moved(b))
		})
	}
}
