package train

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// measureNorm computes the global norm of the gradients. It must run before the step checks whether
// the norm and the gradients are finite.
func measureNorm(p *stepBuilder) { p.norm = p.globalNorms(p.gradients)[0] }

// clip returns a stage that scales the gradients so that their global norm is at most limit, like
// tf.clip_by_global_norm. If the norm is not finite, all gradients become NaN.
func clip(limit float64) stage {
	return func(p *stepBuilder) {
		g, dtype := p.rc.Graph(), p.norm.DType()
		number := func(x float64) *graph.Node { return constant(g, dtype, x) }
		factor := graph.Where(graph.GreaterThan(p.norm, number(limit)), graph.Div(number(limit), p.norm), number(1))
		factor = graph.Where(isFinite(p.norm), factor, number(math.NaN()))
		for i, gradient := range p.gradients {
			p.gradients[i] = multiplyByScalar(gradient, factor)
		}
	}
}

// multiplyByScalar multiplies x by a real scalar in at least float32. The result has the dtype of x.
func multiplyByScalar(x, factor *graph.Node) *graph.Node {
	dtype := x.DType()
	x = graph.ConvertDType(x, factorDType(dtype))
	return graph.ConvertDType(graph.Mul(x, graph.ConvertDType(factor, x.DType())), dtype)
}

// factorDType returns the dtype in which multiplyByScalar multiplies a tensor of the given dtype.
func factorDType(dtype dtypes.DType) dtypes.DType {
	if dtype.IsHalfPrecision() {
		return dtypes.Float32
	}
	return dtype
}
