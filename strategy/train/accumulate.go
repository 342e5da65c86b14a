package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/precision"
)

// observeRows is the stage in which metrics see the arguments, whole or of a microbatch.
func observeRows(p *pass) { p.recorder.observeRows(p.in) }

// accumulate is the stage that takes others, which make a loss and its gradients, for each
// microbatch, and adds up what they make.
func accumulate(n int, policy precision.Policy, stages []stage) stage {
	return func(p *pass) {
		var one *pass
		sums := p.microbatches(n, p.in, func(in []*graph.Node) []*graph.Node {
			one = &pass{trainer: p.trainer, in: in, scaling: p.scaling, recorder: p.recorder}
			for _, add := range stages {
				add(one)
			}
			terms := []*graph.Node{summand(policy, one.loss)}
			for _, gradient := range one.gradients {
				terms = append(terms, summand(policy, gradient))
			}
			return terms
		})
		p.loss, p.trained = graph.ConvertDType(sums[0], one.loss.DType()), one.trained
		for i, gradient := range one.gradients {
			p.gradients = append(p.gradients, graph.ConvertDType(sums[1+i], gradient.DType()))
		}
	}
}

// summand is a term of a sum over microbatches in what the policy adds up in, float32 at least.
func summand(policy precision.Policy, x *graph.Node) *graph.Node {
	in := policy.Filled().Accumulate
	if in == dtypes.InvalidDType {
		in = dtypes.Float32
	}
	if !x.DType().IsHalfPrecision() || in.Bits() < x.DType().Bits() {
		return x
	}
	return graph.ConvertDType(x, in)
}
