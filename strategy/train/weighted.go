package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Weighted returns a loss that f builds as a sum and a weight, such as the sum of the losses of all
// unmasked tokens and their number:
//
//	train.New(strat, store, opt, train.Weighted(
//		func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
//			losses, mask := tokenLosses(rc, in[0]), precision.Output(in[1]) // float32 [rows, tokens]
//			return graph.ReduceAllSum(graph.Mul(losses, mask)), graph.ReduceAllSum(mask)
//		}), train.Options{Accumulate: 4})
//
// The loss of a step is the sum of all sums divided by the sum of all weights, over all replicas
// and microbatches. A step therefore has the same loss, gradients and update as one device on the
// whole batch, for any distribution of the tokens. A mean over each replica's tokens does not have
// this property: it gives more weight to the tokens of replicas with few tokens.
//
// Both results are scalars over the rows of one replica or microbatch. Do not divide them, for
// example by the number of rows. The sum must be float32 or float64, because half precision cannot
// sum the losses of many tokens. Under a precision policy apply [precision.Output] to the terms.
// The weight must be float32, float64 or an integer, and not negative. No gradient flows through
// it. The terms of the layers' regularizers are added to the mean.
//
// If the weights of the whole batch add up to 0, the loss is the sum of the sums, which is 0 if no
// token counts, as in TensorFlow's tf.math.divide_no_nan. The gradients are then zero, and the
// optimizer applies them as in any other step. A microbatch or replica of weight 0 has no effect.
//
// [MeanLoss], [Perplexity] and [BitsPerToken] weight such a loss by its weight, in training steps
// and evaluations. Return the result of Weighted unchanged. To add a term to the loss, add the term
// times the weight to the sum. Outside of training steps and evaluations the loss is the sum.
//
// With Options.Accumulate and several replicas, each microbatch adds one all-reduce of a scalar.
func Weighted(f func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node)) Loss {
	if f == nil {
		return nil
	}
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		sum, weight := f(rc, in)
		checkWeighted("sum", sum, func(dtype dtypes.DType) bool { return dtype.IsFloat() })
		checkWeighted("weight", weight, func(dtype dtypes.DType) bool { return dtype.IsFloat() || dtype.IsInt() })
		weight = graph.StopGradient(graph.ConvertDType(weight, sum.DType()))
		engine.Internal(rc).State().Weighted = [2]*graph.Node{sum, weight}
		return sum
	}
}

// checkWeighted checks x, a result of the function that was passed to [Weighted]. It panics unless
// x is a scalar, fits returns true for its dtype, and the dtype has more than half precision.
func checkWeighted(name string, x *graph.Node, fits func(dtype dtypes.DType) bool) {
	switch {
	case x == nil:
		panicInvalid("return a sum and a weight", "the weighted loss has no %s: the node is nil", name)
	case !x.IsScalar() || !fits(x.DType()):
		panicInvalid("return a scalar, such as graph.ReduceAllSum of the losses and of the mask",
			"the %s of the weighted loss is %s", name, x.Shape())
	case x.DType().IsHalfPrecision():
		panicInvalid(
			"add it up in float32: write precision.Output or graph.ConvertDType around the terms before they are added up",
			"the %s of the weighted loss is %s, which cannot count many tokens", name, x.DType())
	}
}

// weightOf returns the weight of a loss that [Weighted] built, or nil for any other loss. It panics
// if the loss function does not return the result of [Weighted] unchanged.
func (t *trainer) weightOf(loss *graph.Node) *graph.Node {
	registered := t.common.Weighted
	if registered[0] != nil && registered[0] != loss {
		panicInvalid("add such a term, times the weight, to the sum in the function given to train.Weighted",
			"the loss function changes what train.Weighted returned")
	}
	return registered[1]
}

// weightLoss scales the loss of a replica or microbatch so that its mean over the replicas, summed
// over the microbatches, is the loss of the complete batch. It divides a weighted loss by the
// weight of the microbatch, so that half-precision gradients do not underflow; toSumDType reverses
// this division.
func weightLoss(p *stepBuilder) {
	if p.weight == nil {
		p.loss = p.weightByRows(p.own)
		return
	}
	p.divisor = oneIfZero(p.rc.AllReduce(strategy.Sum, p.weight))
	if p.micro != nil {
		p.divisor = graph.DivScalar(p.divisor, p.micro.meanWeight)
	}
	p.loss = graph.Div(graph.MulScalar(p.sum, float64(p.rc.NumReplicasInSync())), p.divisor)
	if rows, _ := engine.Internal(p.rc).RowCounts(); rows != nil {
		p.loss = selectIfRows(rows, p.loss, graph.ZerosLike(p.loss))
	}
}

// oneIfZero returns x with zeros replaced by ones, for use as a divisor.
func oneIfZero(x *graph.Node) *graph.Node {
	return graph.Where(graph.Equal(x, graph.ZerosLike(x)), graph.OnesLike(x), x)
}
