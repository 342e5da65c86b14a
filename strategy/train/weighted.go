package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Weighted returns the loss that f builds as a sum and a weight, such as the sum of the losses of all
// tokens that count and their number:
//
//	train.New(strat, store, opt, train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
//		losses, mask := tokenLosses(rc, in[0]), precision.Output(in[1]) // float32 [rows, tokens]
//		return graph.ReduceAllSum(graph.Mul(losses, mask)), graph.ReduceAllSum(mask)
//	}), train.Options{Accumulate: 4})
//
// The loss of a step is the sum of all sums over the sum of all weights, of all replicas and
// microbatches, and its gradient is the gradient of the sums over that weight. So a step has the loss,
// the gradients and the update of one device on the whole batch, however many tokens count in each
// replica and microbatch. The mean over a replica's tokens does not have this property: the mean of
// the replicas' means counts a token more if its replica has few tokens.
//
// Both results are scalars of one replica's rows, or of one microbatch's. The sum is a float32 or a
// float64, as half precision cannot add up the losses of many tokens; under a precision policy write
// [precision.Output] around the terms. The weight is a float32, a float64 or an integer, and not
// negative. No gradient flows through it. Neither is divided by anything, such as the number of rows.
// Terms of the layers' regularizers are added to the mean.
//
// Where the weights of the whole batch add up to 0, the loss is the sum of the sums, which is 0 if
// nothing counts, as in TensorFlow's tf.math.divide_no_nan: the gradients are zeros, and the optimizer
// applies them as in any other step. A microbatch or replica without weight changes nothing.
//
// [MeanLoss], [Perplexity] and [BitsPerToken] weigh such a loss by its weight, in steps and in
// evaluations. Return the result of Weighted as it is: a term that is added to it would be divided
// by the weight, so add a term times the weight to the sum. Outside of training steps and evaluations
// the loss is the sum.
//
// With Options.Accumulate and several replicas each microbatch adds up one number over the replicas.
func Weighted(f func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node)) Loss {
	if f == nil {
		return nil
	}
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		sum, weight := f(rc, in)
		checkWeighted("sum", sum, func(dtype dtypes.DType) bool { return dtype.IsFloat() })
		checkWeighted("weight", weight, func(dtype dtypes.DType) bool { return dtype.IsFloat() || dtype.IsInt() })
		weight = graph.StopGradient(graph.ConvertDType(weight, sum.DType()))
		innerContext(rc).State().Weighted = [2]*graph.Node{sum, weight}
		return sum
	}
}

// checkWeighted panics unless x is a scalar of a dtype that can add up many terms.
func checkWeighted(name string, x *graph.Node, fits func(dtype dtypes.DType) bool) {
	switch {
	case x == nil:
		wrong("return a sum and a weight", "the weighted loss has no %s: the node is nil", name)
	case !x.IsScalar() || !fits(x.DType()):
		wrong("return a scalar, such as graph.ReduceAllSum of the losses and of the mask", "the %s of the weighted loss is %s", name, x.Shape())
	case x.DType().IsHalfPrecision():
		wrong("add it up in float32: write precision.Output or graph.ConvertDType around the terms before they are added up",
			"the %s of the weighted loss is %s, which cannot count many tokens", name, x.DType())
	}
}

// weightOf returns the weight of a loss that a loss function has returned, nil for a mean.
func (t *trainer) weightOf(loss *graph.Node) *graph.Node {
	registered := t.common.Weighted
	if registered[0] != nil && registered[0] != loss {
		wrong("add such a term, times the weight, to the sum in the function given to train.Weighted",
			"the loss function changes what train.Weighted returned")
	}
	return registered[1]
}

// weigh is the stage that scales the replica's loss, or the loss of its microbatch, so that the mean
// over the replicas, added up over the microbatches, is the loss of the whole batch. Microbatches of a
// weighted loss are scaled by their own weights, as [accumulate] undoes: the gradients of a microbatch
// are then as large as without weights, which the range of half precision needs.
func weigh(p *pass) {
	if p.weight == nil {
		p.loss = p.weighted(p.own)
		return
	}
	p.divisor = oneIfZero(p.rc.AllReduce(strategy.Sum, p.weight))
	if p.micro != nil {
		p.divisor = graph.DivScalar(p.divisor, p.micro.share)
	}
	p.loss = graph.Div(graph.MulScalar(p.sum, float64(p.rc.NumReplicasInSync())), p.divisor)
	if rows, _ := p.inner.Rows(); rows != nil {
		p.loss = ifRows(rows, p.loss, graph.ZerosLike(p.loss))
	}
}

// oneIfZero replaces a divisor of 0 by 1.
func oneIfZero(x *graph.Node) *graph.Node {
	return graph.Where(graph.Equal(x, graph.ZerosLike(x)), graph.OnesLike(x), x)
}
