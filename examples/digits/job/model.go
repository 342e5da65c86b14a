package job

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Variables returns the rules that split the hidden layer over the logical devices of a replica: the
// columns of its weights, its biases, and the rows of the output layer's weights that meet them.
// Adam's moments have the paths of their variables in theirs, and go with them.
func Variables(logicalDevices int) logical.Rules {
	return logical.Rules{
		logical.Match(`/hidden/.*weights`, logical.SplitInto(1, logicalDevices)),
		logical.Match(`/hidden/.*biases`, logical.SplitInto(logicalDevices)),
		logical.Match(`/output/.*weights`, logical.SplitInto(logicalDevices, 1)),
	}
}

// logits is the model, for one replica: images [batch, features] to [batch, Classes]. hidden is a
// multiple of the number of logical devices.
func logits(rc *strategy.ReplicaContext, images *graph.Node, hidden int) *graph.Node {
	logicalDevices := rc.Strategy().NumLogicalDevices()
	h := layers.Dense(rc.Scope("hidden"), images, true, hidden)
	h = graph.Max(logical.Split(h, 1, logicalDevices), graph.ScalarZero(h.Graph(), h.DType()))
	// Each logical device multiplies its slice of h; the sum over them is whole on each.
	return logical.Replicate(layers.Dense(rc.Scope("output"), h, true, Classes))
}

// Loss is the training loss of a replica: the mean cross-entropy of images (in[0]) and labels
// (in[1]).
func Loss(hidden int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(in[1:2], []*graph.Node{logits(rc, in[0], hidden)}))
	}
}

// Correct counts the images of all replicas that are classified rightly: in are images, labels and
// the mask of those that count.
func Correct(hidden int) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		predicted := graph.ArgMax(logits(rc, in[0], hidden), -1, dtypes.Int32)
		right := graph.ConvertDType(graph.Equal(predicted, graph.Squeeze(in[1], -1)), in[2].DType())
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(graph.Mul(right, in[2])))}
	}
}
