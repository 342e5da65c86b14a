package transformer

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
)

// gpt applies a GPT block.
func (d decoder) gpt(x *Node, v values) *Node {
	h := d.layerNorm(x, v["g1"], v["c1"])
	project := func(name string) *Node {
		return d.split(graph.Add(graph.Einsum("bsd,dhk->bshk", h, d.compute(v["w"+name])), d.bias(v["b"+name], 4)), 2)
	}
	q, k, value := project("q"), project("k"), project("v")
	out := d.split(d.attention(q, k, value), 2)
	out = graph.Add(graph.Einsum("bqhk,hkd->bqd", out, d.compute(v["wo"])), d.bias(v["bo"], 3))
	x = graph.Add(x, logical.Replicate(out))

	h = d.layerNorm(x, v["g2"], v["c2"])
	h = gelu(d.split(graph.Add(graph.Einsum("bsd,df->bsf", h, d.compute(v["w1"])), d.bias(v["b1"], 3)), 2))
	h = graph.Add(graph.Einsum("bsf,fd->bsd", h, d.compute(v["w2"])), d.bias(v["b2"], 3))
	return graph.Add(x, logical.Replicate(h))
}

// attention applies attention with as many key heads as query heads.
func (d decoder) attention(q, k, value *Node) *Node {
	if d.cache != nil {
		return d.cache.Attend(q, k, value)
	}
	scores := graph.ConvertDType(graph.Einsum("bqhk,bshk->bhqs", q, k), dtypes.Float32)
	weights := d.weights(graph.DivScalar(scores, math.Sqrt(float64(d.Width/d.Heads))))
	return graph.Einsum("bhqs,bshk->bqhk", weights, value)
}

// bias expands a bias to the given rank.
func (d decoder) bias(b *Node, rank int) *Node { return graph.ExpandLeftToRank(d.compute(b), rank) }

// layerNorm normalizes the last dimension in Float32.
func (d decoder) layerNorm(x, gain, offset *Node) *Node {
	x = graph.ConvertDType(x, dtypes.Float32)
	x = graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, -1))
	x = graph.Mul(x, inverseRoot(graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)))
	return d.compute(graph.Add(graph.Mul(x, graph.ExpandLeftToRank(gain, 3)), graph.ExpandLeftToRank(offset, 3)))
}

// inverseRoot returns 1/sqrt(x + 1e-5). GoMLX has no gradient for Rsqrt.
func inverseRoot(x *Node) *Node { return graph.Reciprocal(graph.Sqrt(graph.AddScalar(x, 1e-5))) }

// gelu computes the tanh approximation. It multiplies x three times instead of using GoMLX's Pow.
func gelu(x *Node) *Node {
	cube := graph.Mul(graph.Mul(x, x), x)
	t := graph.Tanh(graph.MulScalar(graph.Add(x, graph.MulScalar(cube, 0.044715)), math.Sqrt(2/math.Pi)))
	return graph.Mul(x, graph.MulScalar(graph.OnePlus(t), 0.5))
}
