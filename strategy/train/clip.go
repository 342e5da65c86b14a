package train

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// measureNorm is the stage that computes the global norm of the gradients, before the step checks for
// non-finite values.
func measureNorm(p *pass) { p.norm = p.globalNorms(p.gradients)[0] }

// clip returns the stage that scales the gradients so that their global norm is at most limit, like
// tf.clip_by_global_norm.
func clip(limit float64) stage {
	return func(p *pass) {
		g, dtype := p.rc.Graph(), p.norm.DType()
		number := func(x float64) *graph.Node { return constant(g, dtype, x) }
		factor := graph.Where(graph.GreaterThan(p.norm, number(limit)), graph.Div(number(limit), p.norm), number(1))
		factor = graph.Where(isFinite(p.norm), factor, number(math.NaN()))
		for i, gradient := range p.gradients {
			p.gradients[i] = multiply(gradient, factor)
		}
	}
}

// multiply multiplies x by a real scalar in at least float32. The result has the dtype of x.
func multiply(x, factor *graph.Node) *graph.Node {
	dtype := x.DType()
	x = graph.ConvertDType(x, factorDType(dtype))
	return graph.ConvertDType(graph.Mul(x, graph.ConvertDType(factor, x.DType())), dtype)
}

// factorDType returns the dtype in which times multiplies a tensor.
func factorDType(dtype dtypes.DType) dtypes.DType {
	if dtype.IsHalfPrecision() {
		return dtypes.Float32
	}
	return dtype
}
