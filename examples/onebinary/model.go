package main

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Dimensions of the model, a regression with one hidden layer.
const (
	features = 16
	hidden   = 64
	batch    = 128 // rows of all replicas

	learningRate = 0.1
)

// options returns the strategy options, which are the same for compiling and for running.
func options(logicalDevices int) strategy.Options {
	o := strategy.Options{LogicalDevices: logicalDevices}
	if logicalDevices > 1 {
		o.Variables = logical.Rules{logical.Match("hidden", logical.SplitInto(1, logicalDevices)),
			logical.Match("output", logical.SplitInto(logicalDevices, 1))}
	}
	return o
}

// newStore returns a store with initial values, because a compiled step contains no variables. A
// program that resumes a training restores a checkpoint instead.
func newStore() *model.Store {
	store := model.NewStore()
	store.VariableWithValue("/hidden", pseudoRandom(1, features, hidden))
	store.VariableWithValue("/output", pseudoRandom(2, hidden, 1))
	// The optimizer creates its variables only when the step is traced, so create them here.
	store.VariableWithValue("/"+optimizer.Scope+"/"+optimizer.ParamLearningRate, float32(learningRate)).SetTrainable(false)
	store.VariableWithValue("/"+optimizer.GlobalStepVariableName, int64(0)).SetTrainable(false)
	return store
}

// newStep returns the training step. It is called only to compile.
func newStep(s *strategy.TPUStrategy) (*train.Step, error) {
	return train.New(s, newStore(),
		optimizer.StochasticGradientDescent().WithLearningRate(learningRate).WithDecay(false).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			first := rc.Scope().VariableWithValue("hidden", pseudoRandom(1, features, hidden)).NodeValue(rc.Graph())
			last := rc.Scope().VariableWithValue("output", pseudoRandom(2, hidden, 1)).NodeValue(rc.Graph())
			y := graph.Dot(graph.Tanh(graph.Dot(in[0], first).Product()), last).Product()
			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
		}, train.Options{})
}

// newBatch returns the batch of a step.
func newBatch(step int) (x, y *tensors.Tensor) {
	x = pseudoRandom(step+3, batch, features)
	rows := tensors.MustCopyFlatData[float32](x)
	targets := make([]float32, batch)
	for i := range targets {
		targets[i] = rows[i*features] - rows[i*features+1]
	}
	return x, tensors.FromFlatDataAndDimensions(targets, batch, 1)
}

// pseudoRandom returns numbers between -1/2 and 1/2 that look random but are the same in each run.
func pseudoRandom(seed int, rows, columns int) *tensors.Tensor {
	flat := make([]float32, rows*columns)
	for i := range flat {
		flat[i] = float32(math.Sin(float64(seed)*12.9898+float64(i)*78.233)) / 2
	}
	return tensors.FromFlatDataAndDimensions(flat, rows, columns)
}
