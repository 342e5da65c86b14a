package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// program is a training program as GoMLX's users write it: a model function and what it is trained
// with. It knows no devices.
type program struct {
	model     func(scope *model.Scope, spec any, in []*graph.Node) []*graph.Node
	optimizer func() optimizer.Interface
	batch     func() (x, y *tensors.Tensor) // made anew for each step
}

// loss is the loss of the logits that the model gives.
func (program) loss(labels, logits []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(labels, logits))
}

// globalMLP is the model of mlp_step.
func globalMLP() program {
	x, y := mlpBatch()
	return program{
		model: func(scope *model.Scope, _ any, in []*graph.Node) []*graph.Node {
			h := in[0]
			for _, layer := range []string{"first", "second"} {
				h = layers.Dense(scope.In("%s", layer), h, true, 512)
				h = graph.Max(h, graph.ZerosLike(h))
			}
			return []*graph.Node{layers.Dense(scope.In("output"), h, true, 10)}
		},
		optimizer: func() optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
		},
		batch: func() (_, _ *tensors.Tensor) { return clone(x), clone(y) },
	}
}

// globalTransformer is a decoder of the size of transformer_step, of GoMLX's own layers.
func globalTransformer() program {
	numLayers, width, heads, sequence, vocabulary, batch := 4, 256, 8, 128, 256, 32
	if effort < 1 {
		numLayers, width, heads, sequence, batch = 1, 32, 4, 8, 8
	}
	tokens, labels := make([]int32, batch*sequence), make([]int32, batch*sequence)
	for i := range tokens {
		tokens[i] = int32((i*i*7 + i*31 + i/129*13) % vocabulary)
		labels[i] = int32((i*i*11 + i*29 + i/127*17) % vocabulary)
	}
	x := tensors.FromFlatDataAndDimensions(tokens, batch, sequence)
	y := tensors.FromFlatDataAndDimensions(labels, batch, sequence, 1)
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
		optimizer: func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() },
		batch:     func() (_, _ *tensors.Tensor) { return clone(x), clone(y) },
	}
}

// clone copies a tensor in the host's memory.
func clone(t *tensors.Tensor) *tensors.Tensor {
	out, err := t.LocalClone()
	if err != nil {
		panic(err)
	}
	return out
}

// trained takes steps of a program in one way. wait ends when the last of them is done.
type trained struct {
	step, wait func() error
	close      func()
}

// byTrainer trains with GoMLX's own Trainer on a backend, which knows nothing of devices either.
func (p program) byTrainer(backend compute.Backend) trained {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	trainer := gomlxtrain.NewTrainer(backend, store, p.model, p.loss, p.optimizer(), nil, nil)
	var metrics []*tensors.Tensor
	return trained{
		step: func() (err error) {
			x, y := p.batch()
			metrics, err = trainer.TrainStep(gomlxtrain.Batch{Inputs: []*tensors.Tensor{x}, Labels: []*tensors.Tensor{y}})
			return err
		},
		wait: func() error {
			if l := metrics[0].Value().(float32); math.IsNaN(float64(l)) {
				return errors.New("the loss is NaN")
			}
			return nil
		},
		close: backend.Finalize,
	}
}

// byStrategy trains with package strategy/train on replicas of one device.
func (p program) byStrategy(ctx context.Context, devices int) (trained, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return trained{}, err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step, err := train.New(strat, store, p.optimizer(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return p.loss(in[1:], p.model(rc.Scope(), nil, in[:1]))
	}, train.Options{})
	if err != nil {
		done()
		return trained{}, err
	}
	var last *strategy.Mirrored
	return trained{
		step: func() (err error) {
			x, y := p.batch()
			last, err = step.Run(ctx, x, y)
			return err
		},
		wait:  func() error { return last.Ready(ctx) },
		close: done,
	}, nil
}

// globalStep returns the benchmark of a training step by GoMLX's own Trainer on the backend of one
// global view, fed from the host. The floor is the same program by package strategy/train; on one
// device, by the same Trainer on GoMLX's XLA backend with the same plugin. Both are taken in turn.
func globalStep(of func() program) func(ctx context.Context, devices int) (row, error) {
	return func(ctx context.Context, devices int) (row, error) {
		p := of()
		backend, err := compute.NewWithConfig(fmt.Sprintf("tpustrategy:devices=%d", devices))
		if err != nil {
			return row{}, err
		}
		ours := p.byTrainer(backend)
		defer ours.close()
		other, against := trained{}, "strategy/train"
		if devices > 1 {
			other, err = p.byStrategy(ctx, devices)
		} else {
			against = "GoMLX's XLA backend"
			other, err = p.onUpstream()
		}
		if err != nil {
			return row{}, err
		}
		defer other.close()
		return trainedInTurn([2]trained{ours, other}, against, 400, 30*time.Second)
	}
}

// onUpstream trains on GoMLX's XLA backend, with one device of the plugin that ours opens.
func (p program) onUpstream() (trained, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return trained{}, err
	}
	found, err := pjrt.Find(pjrt.FindOptions{Kind: "cpu", Getenv: os.Getenv, GOARCH: runtime.GOARCH, UserCacheDir: cache, Stat: os.Stat})
	if err != nil {
		return trained{}, err
	}
	backend, err := xla.NewWithOptions(found.Path, map[string]any{"cpu_device_count": int64(1)})
	if err != nil {
		return trained{}, err
	}
	return p.byTrainer(backend), nil
}
