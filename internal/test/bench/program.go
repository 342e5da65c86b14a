package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	_ "github.com/tpustrategy/tpustrategy/gomlx" // the backend that is measured
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// program is a GoMLX training program without knowledge of devices: a model function and its
// training options.
type program struct {
	model     func(scope *model.Scope, spec any, in []*graph.Node) []*graph.Node
	optimizer optimizer.Interface
	x, y      *tensors.Tensor // a batch
}

// mlp is a 784-512-512-10 network with batches of 256 rows and plain SGD.
func mlp() program {
	const rows = 256
	rng := rand.New(rand.NewPCG(1, 1))
	pixels, labels := make([]float32, rows*784), make([]int32, rows)
	for i := range pixels {
		pixels[i] = float32(rng.NormFloat64())
	}
	for i := range labels {
		labels[i] = int32(rng.IntN(10))
	}
	return program{
		model: func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
			h := in[0]
			for _, layer := range []string{"first", "second"} {
				h = layers.Dense(scope.In("%s", layer), h, true, 512)
				h = graph.Max(h, graph.ZerosLike(h))
			}
			return []*graph.Node{layers.Dense(scope.In("output"), h, true, 10)}
		},
		optimizer: optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done(),
		x:         tensors.FromFlatDataAndDimensions(pixels, rows, 784), y: tensors.FromFlatDataAndDimensions(labels, rows,
			1),
	}
}

// decoder is a decoder of the size of transformer_step that uses GoMLX's layers.
func decoder() program {
	numLayers, width, heads, sequence, vocabulary, batch := 4, 256, 8, 128, 256, 32
	if effort < 1 {
		numLayers, width, heads, sequence, batch = 1, 32, 4, 8, 8
	}
	tokens, labels := make([]int32, batch*sequence), make([]int32, batch*sequence)
	for i := range tokens {
		tokens[i] = int32((i*i*7 + i*31 + i/129*13) % vocabulary)
		labels[i] = int32((i*i*11 + i*29 + i/127*17) % vocabulary)
	}
	return program{
		model: func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
			h := layers.Embedding(scope.In("tokens"), in[0], dtypes.Float32, vocabulary, width)
			places := graph.Iota(in[0].Graph(), in[0].Shape(), 1)
			h = graph.Add(h, layers.Embedding(scope.In("places"), places, dtypes.Float32, sequence, width))
			for i := range numLayers {
				layer := scope.In("layer%d", i)
				n := norm.LayerNorm(layer.In("norm1"), h, -1).Done()
				h = graph.Add(h, attention.SelfAttention(layer.In("attention"), n, heads, width/heads).WithCausalMask(true).Done())
				n = norm.LayerNorm(layer.In("norm2"), h, -1).Done()
				n = activation.Gelu(layers.Dense(layer.In("up"), n, true, 4*width))
				h = graph.Add(h, layers.Dense(layer.In("down"), n, true, width))
			}
			h = norm.LayerNorm(scope.In("norm"), h, -1).Done()
			return []*graph.Node{layers.Dense(scope.In("head"), h, true, vocabulary)}
		},
		optimizer: optimizer.Adam().LearningRate(1e-3).Done(),
		x:         tensors.FromFlatDataAndDimensions(tokens, batch, sequence), y: tensors.FromFlatDataAndDimensions(labels,
			batch, sequence, 1),
	}
}

func (program) loss(labels, logits []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(labels, logits))
}

func (program) store() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	return store
}

// batch returns a copy of the batch in host memory, because each step consumes its batch.
func (p program) batch() (x, y *tensors.Tensor, err error) {
	x, err = p.x.LocalClone()
	if err == nil {
		y, err = p.y.LocalClone()
	}
	return x, y, err
}

// step returns the training step of the program on replicas.
func (p program) step(strat *strategy.TPUStrategy) (*train.Step, error) {
	return train.New(strat, p.store(), p.optimizer, func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return p.loss(in[1:], p.model(rc.Scope(), nil, in[:1]))
	}, train.Options{})
}

// byStrategy returns a runner that uses package strategy/train and copies batches from the host.
func (p program) byStrategy(ctx context.Context, r *rig) (runner, error) {
	strat, err := r.strategy(ctx, strategy.Options{})
	if err != nil {
		return nil, err
	}
	step, err := p.step(strat)
	var last *strategy.Mirrored
	return timed(func() error {
		x, y, err := p.batch()
		if err == nil {
			last, err = step.Run(ctx, x, y)
		}
		return err
	}, func() error { return last.Ready(ctx) }), err
}

// byTrainer returns a runner that uses GoMLX's Trainer on a backend.
func (p program) byTrainer(r *rig, backend compute.Backend) runner {
	r.later(backend.Finalize)
	trainer := gomlxtrain.NewTrainer(backend, p.store(), p.model, p.loss, p.optimizer, nil, nil)
	var metrics []*tensors.Tensor
	return timed(func() error {
		x, y, err := p.batch()
		if err == nil {
			metrics, err = trainer.TrainStep(gomlxtrain.Batch{Inputs: []*tensors.Tensor{x}, Labels: []*tensors.Tensor{y}})
		}
		return err
	}, func() error {
		if l := metrics[0].Value().(float32); math.IsNaN(float64(l)) {
			return errors.New("the loss is NaN")
		}
		return nil
	})
}

// onUpstream returns a runner that uses GoMLX's XLA backend with one device and the same plugin.
func (p program) onUpstream(r *rig) (runner, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: "cpu", Getenv: os.Getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: cache, Stat: os.Stat})
	if err != nil {
		return nil, err
	}
	backend, err := xla.NewWithOptions(found.Path, map[string]any{"cpu_device_count": int64(1)})
	if err != nil {
		return nil, err
	}
	return p.byTrainer(r, backend), nil
}

// globalStep returns a benchmark of GoMLX's Trainer on this module's backend, which shows all devices as
// one. The baseline is package strategy/train or, on one device, GoMLX's XLA backend with the same plugin.
func globalStep(of func() program) func(ctx context.Context, r *rig) (row, error) {
	return func(ctx context.Context, r *rig) (row, error) {
		backend, err := compute.NewWithConfig(fmt.Sprintf("tpustrategy:devices=%d", r.devices))
		if err != nil {
			return row{}, err
		}
		ours := of().byTrainer(r, backend)
		var other runner
		if r.devices > 1 {
			other, err = of().byStrategy(ctx, r)
		} else {
			other, err = of().onUpstream(r)
		}
		if err != nil {
			return row{}, err
		}
		return repeat{turns: 400, limit: 30 * time.Second, ops: 2}.time(ours, other)
	}
}
