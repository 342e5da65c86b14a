// Package perceptron contains the classifier of examples/digits and examples/multihost. It has one
// hidden layer, whose features are sharded over the logical devices of a replica.
package perceptron

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/input/digits"
	"github.com/tpustrategy/tpustrategy/input/idx"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// New returns the classifier and its data: the MNIST files in a folder, or the 1,797 embedded
// digits of 8x8 pixels if folder is empty. The hidden layer uses the rematerialization policy that
// f.Remat contains when the step is traced.
func New(folder string, f *trainer.Flags) (trainer.Classifier, error) {
	training, test, err := idx.ReadTrainTest(folder, digits.IDX)
	return trainer.Classifier{
		Logits: func(rc *strategy.ReplicaContext, images *graph.Node) *graph.Node {
			return logits(rc, images,
				f.Remat)
		}, Training: training, Test: test, Batch: 64, Variables: rules,
		Optimizer: optimizer.Adam().LearningRate(2e-3).Done(), Patience: 10,
	}, err
}

// rules shards the columns of the hidden layer's weights, its biases, and the rows of the output
// layer's weights. Adam's moments are sharded like their variables.
var rules = logical.Rules{
	logical.Match(`/hidden/.*weights`, logical.SplitOverAxes("", logical.LogicalAxis)),
	logical.Match(`/hidden/.*biases`, logical.SplitOverAxes(logical.LogicalAxis)),
	logical.Match(`/output/.*weights`, logical.SplitOverAxes(logical.LogicalAxis, "")),
}

// logits returns the scores of the 10 classes for images of any size.
func logits(rc *strategy.ReplicaContext, images *graph.Node, keep remat.Policy) *graph.Node {
	x := graph.DivScalar(graph.ConvertDType(images, dtypes.Float32), 255)
	// Precision policies do not convert integer inputs, so convert the images to the dtype of the
	// computation here.
	x = precision.Compute(graph.Reshape(x, x.Shape().Dimensions[0], -1))
	h := remat.Block(keep, x, func(x *graph.Node) *graph.Node {
		h := layers.Dense(rc.Scope("hidden"), x, true, 256)
		return activation.Relu(logical.Split(h, 1, rc.Strategy().NumLogicalDevices()))
	})
	// Each logical device multiplies its features; the sum over the logical devices is replicated.
	return logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 10))
}
