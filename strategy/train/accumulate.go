package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// observeRows accumulates the metrics that are computed from the arguments, for all rows of the
// batch or of one microbatch.
func observeRows(p *stepBuilder) { p.recorder.observeRows(p.in) }

// accumulate returns a stage that runs the given stages once for each of n microbatches, in a loop
// on the devices, and sums the resulting losses and gradients. The given stages must build a loss
// and its gradients.
func accumulate(n int, policy precision.Policy, stages []stage) stage {
	return func(p *stepBuilder) {
		var one *stepBuilder
		sums := p.sumOverMicrobatches(n, p.in, func(in []*graph.Node) []*graph.Node {
			one = &stepBuilder{trainer: p.trainer, in: in, scaling: p.scaling, recorder: p.recorder}
			for _, add := range stages {
				add(one)
			}
			terms := []*graph.Node{one.toSumDType(policy, one.loss)}
			for _, gradient := range one.gradients {
				terms = append(terms, one.toSumDType(policy, gradient))
			}
			if one.weight != nil {
				terms = append(terms, one.weight)
			}
			return terms
		})
		if one.weight != nil {
			p.weight = sums[len(sums)-1]
			p.divisor = oneIfZero(p.rc.AllReduce(strategy.Sum, p.weight))
		}
		p.loss, p.trained = p.meanFromSum(sums[0], one.loss.DType()), one.trained
		for i, gradient := range one.gradients {
			p.gradients = append(p.gradients, p.meanFromSum(sums[1+i], gradient.DType()))
		}
	}
}

// toSumDType converts x, the loss or a gradient of one microbatch, to the dtype in which the
// microbatches are summed. If the loss is weighted, it also multiplies x by the weight by which
// weightLoss has divided the loss.
func (p *stepBuilder) toSumDType(policy precision.Policy, x *graph.Node) *graph.Node {
	if p.weight == nil {
		return convertToSumDType(policy, x)
	}
	x = convertToSumDType(precision.Policy{}, x)
	return graph.Mul(x, graph.ConvertDType(p.divisor, x.DType()))
}

// meanFromSum converts the sum of a loss or gradient over all microbatches to the value for the
// batch, in the given dtype.
func (p *stepBuilder) meanFromSum(sum *graph.Node, dtype dtypes.DType) *graph.Node {
	if p.weight != nil {
		sum = graph.Div(sum, graph.ConvertDType(p.divisor, sum.DType()))
	}
	return graph.ConvertDType(sum, dtype)
}

// convertToSumDType converts half-precision x to the dtype Accumulate of the policy, by default
// float32. It returns x unchanged if that dtype is narrower.
func convertToSumDType(policy precision.Policy, x *graph.Node) *graph.Node {
	in := policy.WithDefaults().Accumulate
	if in == dtypes.InvalidDType {
		in = dtypes.Float32
	}
	if !x.DType().IsHalfPrecision() || in.Bits() < x.DType().Bits() {
		return x
	}
	return graph.ConvertDType(x, in)
}
