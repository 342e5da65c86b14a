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

// Node is a value in a step.
type Node = graph.Node

// Config is a decoder at one size, and the form that its step has. It is a value: copy it and
// change what is to be different.
type Config struct {
	Layers, Width, Heads int
	// KeyHeads are the heads of keys and values, each of which Heads/KeyHeads heads of queries read.
	// 0 is Heads. Only a block of Llama's has fewer.
	KeyHeads int
	// Hidden is the width between the dense layers; 0 is 4*Width.
	Hidden               int
	Sequence, Vocabulary int
	// Batch is the number of rows of the global batch.
	Batch int
	// Llama chooses Llama's block in place of that of the comparison.
	Llama bool
	// Compute is the dtype of activations and products, Float32 if it is not set. Variables, their
	// gradients, normalisation, softmax and the loss are Float32.
	Compute dtypes.DType
	// Loop runs the layers in a loop, over variables that are stacks of all layers.
	Loop bool
	// Keep says what of each layer is kept for the backward pass.
	Keep remat.Policy
	// Shared are the rules for what of the state of training the replicas share out.
	Shared logical.Rules
	// Optimizer makes the step's optimizer; nil is AdamW with the constants of the comparison.
	Optimizer func() optimizer.Interface
}

// Peer returns the model of the comparison: 4 layers of width 256.
func Peer() Config {
	return Config{Layers: 4, Width: 256, Heads: 8, Sequence: 128, Vocabulary: 256, Batch: 32}
}

// Tiny returns a model of the same form that compiles in a few seconds. Some of its sizes do not
// divide by 8.
func Tiny() Config {
	return Config{Layers: 2, Width: 24, Heads: 8, Sequence: 9, Vocabulary: 40, Batch: 8}
}

// TinyLlama returns as small a model with Llama's blocks.
func TinyLlama() Config {
	c := Tiny()
	c.Llama, c.Width, c.Heads, c.KeyHeads = true, 32, 16, 8
	return c
}

// Billion returns 1.3 billion parameters: 24 layers of width 2,048, with two rows for each of 4 replicas.
func Billion() Config {
	return Config{Layers: 24, Width: 2048, Heads: 16, Sequence: 2048, Vocabulary: 32000, Batch: 8,
		Compute: dtypes.BFloat16}
}

// Llama8B returns the shapes of Llama 3 8B. The caller sets the batch.
func Llama8B() Config {
	return Config{Layers: 32, Width: 4096, Heads: 32, KeyHeads: 8, Hidden: 14336, Sequence: 8192, Vocabulary: 128256,
		Llama: true, Compute: dtypes.BFloat16}
}

// Llama70B returns the shapes of Llama 3 70B. The caller sets the batch.
func Llama70B() Config {
	return Config{Layers: 80, Width: 8192, Heads: 64, KeyHeads: 8, Hidden: 28672, Sequence: 8192, Vocabulary: 128256,
		Llama: true, Compute: dtypes.BFloat16}
}

// filled returns the config with its defaults in place.
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

// Options returns those of a strategy of R replicas of P logical devices that splits the model's
// variables and shares out its state.
func (c Config) Options(replicas, logicalDevices int) strategy.Options {
	return strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices, Variables: append(c.Rules(logicalDevices),
		c.Shared...)}
}

// Step returns the model's training step over a store. It takes one argument, of the shape and
// dtype of [Config.Tokens].
func (c Config) Step(s *strategy.TPUStrategy, store *model.Store) *train.Step {
	step, err := train.New(s, store, c.filled().Optimizer(), c.Loss, train.Options{Name: "transformer"})
	if err != nil {
		panic(err) // an optimizer that takes no gradients
	}
	return step
}

// TokensShape returns the shape of the step's argument: a row has one token more than the sequence,
// as each token is the label of those before it.
func (c Config) TokensShape() shapes.Shape { return shapes.Make(dtypes.Int32, c.Batch, c.Sequence+1) }

// Tokens returns the tokens of the comparison.
func (c Config) Tokens() *tensors.Tensor {
	all := make([]int32, c.Batch*(c.Sequence+1))
	for i := range all {
		all[i] = int32((i*i*7 + i*31 + i/129*13) % c.Vocabulary)
	}
	return tensors.FromFlatDataAndDimensions(all, c.Batch, c.Sequence+1)
}
