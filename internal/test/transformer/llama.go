package transformer

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
)

// llama applies a Llama 3 block.
func (d decoder) llama(x *Node, v values) *Node {
	h := d.rmsNorm(x, v["g1"])
	project := func(name string) *Node {
		return d.split(graph.Einsum("bsd,dhk->bshk", h, d.compute(v[name])), 2)
	}
	q, k, value := d.rotated(project("wq")), d.rotated(project("wk")), project("wv")
	out := d.split(d.grouped(q, k, value), 2)
	x = graph.Add(x, logical.Replicate(graph.Einsum("bqhk,hkd->bqd", out, d.compute(v["wo"]))))

	h = d.rmsNorm(x, v["g2"])
	up := func(name string) *Node { return d.split(graph.Einsum("bsd,df->bsf", h, d.compute(v[name])), 2) }
	gate := up("w1")
	h = graph.Mul(graph.Mul(gate, graph.Sigmoid(gate)), up("w3"))
	return graph.Add(x, logical.Replicate(graph.Einsum("bsf,fd->bsd", h, d.compute(v["w2"]))))
}

// grouped applies grouped-query attention.
func (d decoder) grouped(q, k, value *Node) *Node {
	if d.cache != nil {
		return d.cache.Attend(q, k, value)
	}
	rows, places, size := q.Shape().Dim(0), q.Shape().Dim(1), d.Width/d.Heads
	// The query heads of one key head are adjacent, so splitting the query heads also splits the
	// key heads.
	q = d.split(graph.Reshape(q, rows, places, d.KeyHeads, d.Heads/d.KeyHeads, size), 2)
	scores := graph.ConvertDType(graph.Einsum("bqhgk,bshk->bhgqs", q, k), dtypes.Float32)
	weights := d.weights(graph.DivScalar(scores, math.Sqrt(float64(size))))
	out := d.split(graph.Einsum("bhgqs,bshk->bqhgk", weights, value), 2)
	return graph.Reshape(out, rows, places, d.Heads, size)
}

// rmsNorm applies RMS normalization to the last dimension in Float32.
func (d decoder) rmsNorm(x, gain *Node) *Node {
	x = graph.ConvertDType(x, dtypes.Float32)
	x = graph.Mul(x, inverseRoot(graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)))
	return d.compute(graph.Mul(x, graph.ExpandLeftToRank(gain, 3)))
}

// rotated applies rotary positions to x, which has the shape [rows, positions, heads, size]. It
// rotates the pairs of elements i and i + size/2 of each head.
func (d decoder) rotated(x *Node) *Node {
	g, n, half := x.Graph(), x.Shape().Dim(1), x.Shape().Dim(-1)/2
	table := shapes.Make(dtypes.Float32, 1, n, 1, half)
	speed := graph.Exp(graph.MulScalar(graph.Iota(g, table, 3), -math.Log(500000)/float64(half)))
	angle := graph.Mul(graph.Iota(g, table, 1), speed)
	if d.positions != nil {
		places := graph.InsertAxes(graph.ConvertDType(d.positions, dtypes.Float32), -1, -1) // [rows, positions, 1, 1]
		dims := []int{x.Shape().Dim(0), n, 1, half}
		angle = graph.Mul(graph.BroadcastToDims(places, dims...), graph.BroadcastToDims(graph.Slice(speed, graph.AxisRange(),
			graph.AxisElem(0)), dims...))
	}
	cos, sin := graph.Cos(angle), graph.Sin(angle)
	x = graph.ConvertDType(x, dtypes.Float32)
	part := func(from, to int) *Node {
		return graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(from, to))
	}
	a, b := part(0, half), part(half, 2*half)
	return d.compute(graph.Concatenate([]*Node{
		graph.Sub(graph.Mul(a, cos), graph.Mul(b, sin)),
		graph.Add(graph.Mul(b, cos), graph.Mul(a, sin)),
	}, -1))
}
