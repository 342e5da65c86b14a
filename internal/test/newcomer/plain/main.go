package main

import (
	"fmt"
	"log"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	_ "github.com/tpustrategy/tpustrategy/gomlx" // the one line
)

func main() {
	backend, err := compute.New()
	if err != nil {
		log.Fatal(err)
	}
	trainer := train.NewTrainer(backend, model.NewStore(), func(scope *model.Scope, x *graph.Node) *graph.Node {
		return layers.Dense(scope.In("output"), graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 16)), true, 1)
	}, loss.MeanSquaredError, optimizer.Adam().LearningRate(0.02).Done(), nil, nil)
	xs, ys := make([]float32, 64), make([]float32, 64)
	for i := range xs {
		xs[i] = float32(i)/32 - 1
		ys[i] = 2 * xs[i]
	}
	for step := range 200 {
		metrics, err := trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(xs, 64, 1)},
			Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(ys, 64, 1)}})
		if err != nil {
			log.Fatal(err)
		}
		if step%50 == 49 {
			fmt.Printf("step %d: loss %.5f\n", step+1, tensors.ToScalar[float32](metrics[0]))
		}
	}
}
