package main

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/examples/mnist"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ui/commandline"

	_ "github.com/gomlx/gomlx/backends/default"
)

const (
	every    = 5    // steps between evaluations
	patience = 4    // evaluations without a better loss before the loop stops
	better   = 1e-3 // minimum decrease of the loss
	most     = 500  // maximum number of steps
)

// errStop stops the loop.
var errStop = errors.New("the loss does not fall any more")

func main() {
	if err := trained(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func trained(data, kept string) error {
	backend, err := compute.New()
	if err != nil {
		return err
	}
	images, _, held := mnist.CreateDatasets(backend, &mnist.DatasetsConfiguration{DataDir: data, BatchSize: 32,
		EvalBatchSize: 64, Dtype: dtypes.Float32})
	store := model.NewStore()
	handler, err := checkpoint.Build(store).Dir(kept).Keep(1).Done()
	if err != nil {
		return err
	}
	trainer := newTrainer(backend, store)
	loop := train.NewLoop(trainer)
	commandline.AttachProgressBar(loop)
	least, at, waited := math.Inf(1), 0, 0
	train.EveryNSteps(loop, every, "early stop", 100, func(loop *train.Loop, _ []*tensors.Tensor) error {
		now, err := evaluated(trainer, held)
		if err != nil {
			return err
		}
		if now < least-better {
			least, at, waited = now, loop.LoopStep, 0
			return handler.Save()
		}
		if waited++; waited == patience {
			return errStop
		}
		return nil
	})
	if _, err := loop.RunSteps(images, most); !errors.Is(err, errStop) {
		return fmt.Errorf("the loop ended with %v, want an early stop before step %d", err, most)
	}
	fmt.Printf("\nstopped at step %d: %v\n", loop.LoopStep, errStop)

	// The best checkpoint, restored into a new store, must have the same loss as before.
	restored := model.NewStore()
	if _, err := checkpoint.Build(restored).Dir(kept).Done(); err != nil {
		return err
	}
	again, err := evaluated(newTrainer(backend, restored), held)
	if err != nil {
		return err
	}
	if math.Abs(again-least) > 1e-6 {
		return fmt.Errorf("the restored checkpoint has loss %v, the best was %v", again, least)
	}
	fmt.Printf("best at step %d: loss %.4f, restored %.4f\n", at, least, again)
	return nil
}

func newTrainer(backend compute.Backend, store *model.Store) *train.Trainer {
	return train.NewTrainer(backend, store, mnist.LinearModelGraph, loss.SparseCategoricalCrossEntropyLogits,
		optimizer.Adam().LearningRate(0.003).Done(), nil, nil)
}

// evaluated returns the mean loss on a dataset.
func evaluated(trainer *train.Trainer, ds train.Dataset) (float64, error) {
	metrics, err := trainer.Eval(ds)
	if err != nil {
		return 0, err
	}
	return shapes.ConvertTo[float64](metrics[0].Value()), nil
}
