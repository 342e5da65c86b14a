package train

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// measure is the stage that takes the global norm of the gradients, before they are judged.
func measure(p *pass) { p.norm = p.globalNorms(p.gradients)[0] }

// clip is the stage that scales the gradients so that their norm is at most limit, as
// tf.clip_by_global_norm does.
func clip(limit float64) stage {
	return func(p *pass) {
		g, dtype := p.rc.Graph(), p.norm.DType()
		number := func(x float64) *graph.Node { return constant(g, dtype, x) }
		factor := graph.Where(graph.GreaterThan(p.norm, number(limit)), graph.Div(number(limit), p.norm), number(1))
		factor = graph.Where(finite(p.norm), factor, number(math.NaN()))
		for i, gradient := range p.gradients {
			p.gradients[i] = times(gradient, factor)
		}
	}
}

// times is a tensor times a real scalar, of the tensor's dtype, computed in float32 at least.
func times(x, factor *graph.Node) *graph.Node {
	dtype := x.DType()
	x = graph.ConvertDType(x, factorDType(dtype))
	return graph.ConvertDType(graph.Mul(x, graph.ConvertDType(factor, x.DType())), dtype)
}

// factorDType is the dtype in which tensors of a dtype are multiplied.
func factorDType(dtype dtypes.DType) dtypes.DType {
	if dtype.IsHalfPrecision() {
		return dtypes.Float32
	}
	return dtype
}
