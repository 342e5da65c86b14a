package transformer

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Node is a node of the graph of a step.
type Node = graph.Node

// Config describes a decoder and its training step. It is a value type: copy and modify it.
type Config struct {
	Layers, Width, Heads int
	// KeyHeads is the number of key and value heads. Each one is shared by Heads/KeyHeads query
	// heads. The default is Heads. Only Llama blocks support fewer key heads.
	KeyHeads int
	// Hidden is the width of the feed-forward network. The default is 4*Width.
	Hidden               int
	Sequence, Vocabulary int
	// Batch is the number of rows of the global batch.
	Batch int
	// Llama selects Llama blocks instead of GPT blocks.
	Llama bool
	// Compute is the dtype of activations and products. The default is Float32. Variables,
	// gradients, normalization, softmax and the loss are always Float32.
	Compute dtypes.DType
	// Loop runs the layers in a loop over stacked variables.
	Loop bool
	// Keep is the rematerialization policy of the layers.
	Keep remat.Policy
	// Shared contains the rules that shard the training state over the replicas.
	Shared logical.Rules
	// Optimizer returns the optimizer of the step. The default is AdamW with the constants of the
	// JAX benchmark.
	Optimizer func() optimizer.Interface
}

// Peer returns the benchmark model: 4 layers of width 256.
func Peer() Config {
	return Config{Layers: 4, Width: 256, Heads: 8, Sequence: 128, Vocabulary: 256, Batch: 32}
}

// Tiny returns a small model with GPT blocks that compiles in a few seconds. Some of its sizes are
// not divisible by 8.
func Tiny() Config {
	return Config{Layers: 2, Width: 24, Heads: 8, Sequence: 9, Vocabulary: 40, Batch: 8}
}

// TinyLlama returns a small model with Llama blocks.
func TinyLlama() Config {
	c := Tiny()
	c.Llama, c.Width, c.Heads, c.KeyHeads = true, 32, 16, 8
	return c
}

// Billion returns a model with 1.3 billion parameters: 24 layers of width 2,048. The batch has two
// rows for each of 4 replicas.
func Billion() Config {
	return Config{Layers: 24, Width: 2048, Heads: 16, Sequence: 2048, Vocabulary: 32000, Batch: 8,
		Compute: dtypes.BFloat16}
}

// Llama8B returns the shapes of Llama 3 8B. The caller must set Batch.
func Llama8B() Config {
	return Config{Layers: 32, Width: 4096, Heads: 32, KeyHeads: 8, Hidden: 14336, Sequence: 8192, Vocabulary: 128256,
		Llama: true, Compute: dtypes.BFloat16}
}

// Llama70B returns the shapes of Llama 3 70B. The caller must set Batch.
func Llama70B() Config {
	return Config{Layers: 80, Width: 8192, Heads: 64, KeyHeads: 8, Hidden: 28672, Sequence: 8192, Vocabulary: 128256,
		Llama: true, Compute: dtypes.BFloat16}
}

// filled returns the config with its default values.
func (c Config) filled() Config {
	if c.KeyHeads == 0 {
		c.KeyHeads = c.Heads
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	if c.Compute == dtypes.InvalidDType {
		c.Compute = dtypes.Float32
	}
	if c.Optimizer == nil {
		c.Optimizer = func() optimizer.Interface {
			return optimizer.Adam().LearningRate(1e-3).WeightDecay(0.01).Done()
		}
	}
	return c
}

// Options returns strategy options for replicas of several logical devices, with the rules of the
// model's variables and of its training state.
func (c Config) Options(replicas, logicalDevices int) strategy.Options {
	return strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices, Variables: append(c.Rules(logicalDevices),
		c.Shared...)}
}

// Step returns the model's training step, with variables in the store. The step accepts one
// argument of the shape and dtype of [Config.Tokens].
func (c Config) Step(s *strategy.TPUStrategy, store *model.Store) *train.Step {
	step, err := train.New(s, store, c.filled().Optimizer(), c.Loss, train.Options{Name: "transformer"})
	if err != nil {
		panic(err) // the optimizer accepts no gradients
	}
	return step
}

// TokensShape returns the shape of the step's argument. A row has one more token than the sequence,
// because each token is the label of the preceding ones.
func (c Config) TokensShape() shapes.Shape { return shapes.Make(dtypes.Int32, c.Batch, c.Sequence+1) }

// Tokens returns the tokens that the JAX benchmark also uses.
func (c Config) Tokens() *tensors.Tensor {
	all := make([]int32, c.Batch*(c.Sequence+1))
	for i := range all {
		all[i] = int32((i*i*7 + i*31 + i/129*13) % c.Vocabulary)
	}
	return tensors.FromFlatDataAndDimensions(all, c.Batch, c.Sequence+1)
}
