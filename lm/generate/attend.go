package generate

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Attend returns the result of causal multi-head attention. For each query head of a token, it is
// the mean of the values of all tokens up to this token. The weights are the softmax of the
// products of query and keys, divided by the square root of the head size. Queries are [rows, n,
// heads, size], keys and values are [rows, n, key heads, size], and the result has the shape and
// dtype of the queries. The number of heads must be a multiple of the number of key heads: with g =
// heads / key heads, query heads h*g to h*g+g-1 use key head h.
//
// Scores and softmax are computed in Float32. A cache first adds the keys and values, as in
// [Cache.Update]. Apply rotary embeddings to queries and keys before calling Attend.
func (c *Cache) Attend(queries, keys, values *graph.Node) *graph.Node {
	if queries.Rank() != 4 || keys.Rank() != 4 || queries.Shape().Dim(2)%keys.Shape().Dim(2) != 0 {
		panicValueError("attention",
			"pass queries [rows, tokens, heads, size] whose number of heads is a multiple of the number of key heads",
			"queries of shape %s and keys of %s", queries.Shape(), keys.Shape())
	}
	shape := queries.Shape().Dimensions
	rows, n, heads, size := shape[0], shape[1], shape[2], shape[3]
	keyHeads := keys.Shape().Dim(2)
	q := graph.MulScalar(queries, 1/math.Sqrt(float64(size)))
	q = graph.Reshape(q, rows, n, keyHeads, heads/keyHeads, size)
	// Without a cache the keys keep their layout, so the compiler needs no transposed copy.
	layout, k, v, mask := "bshk", keys, values, (*graph.Node)(nil)
	if c == nil {
		mask = causalMask(keys, values)
	} else {
		layout = "bhsk"
		k, v, mask = c.Update(keys, values)
	}
	scores := graph.ConvertDType(graph.Einsum("bqhgk,"+layout+"->bhgqs", q, k), dtypes.Float32)
	mask = graph.BroadcastToDims(graph.InsertAxes(mask, 1, 1), scores.Shape().Dimensions...)
	scores = graph.Where(mask, scores, graph.Scalar(scores.Graph(), dtypes.Float32, -1e30))
	weights := graph.ConvertDType(graph.Softmax(scores, -1), queries.DType())
	return graph.Reshape(graph.Einsum("bhgqs,"+layout+"->bqhgk", weights, v), shape...)
}

// checkHeads panics with an error unless keys and values have the same shape of rank 4.
func checkHeads(keys, values *graph.Node) {
	if keys.Rank() != 4 || !keys.Shape().Equal(values.Shape()) {
		panicValueError("update of the cache", "pass both as [rows, tokens, heads, size]",
			"keys of shape %s and values of %s", keys.Shape(), values.Shape())
	}
}

// causalMask returns the causal attention mask of complete sequences, [rows, n, n].
func causalMask(keys, values *graph.Node) *graph.Node {
	checkHeads(keys, values)
	g, rows, n := keys.Graph(), keys.Shape().Dim(0), keys.Shape().Dim(1)
	places := shapes.Make(dtypes.Int32, n, n)
	mask := graph.LessOrEqual(graph.Iota(g, places, 1), graph.Iota(g, places, 0))
	return graph.BroadcastToDims(graph.InsertAxes(mask, 0), rows, n, n)
}

// Rotary applies rotary position embeddings: it rotates elements i and i + size/2 of each head by
// the angle position / base^(2i/size). x is [rows, n, heads, size], and positions are the result of
// [Cache.Positions]. base is 10000 for most models. Angles are computed in Float32, and the result
// has the dtype of x. The result equals GoMLX's pos.RoPE, but each row has its own positions.
func Rotary(x, positions *graph.Node, base float64) *graph.Node {
	if x.Rank() != 4 || positions.Rank() != 2 || x.Shape().Dim(-1)%2 != 0 || !(base > 0) {
		panicValueError("rotary embedding",
			"pass heads [rows, tokens, heads, size] of an even size, positions [rows, tokens] and a positive base",
			"x of shape %s, positions of %s, base %v", x.Shape(), positions.Shape(), base)
	}
	g, dims := x.Graph(), x.Shape().Dimensions
	half := dims[3] / 2
	table := shapes.Make(dtypes.Float32, dims[0], dims[1], 1, half)
	speed := graph.Exp(graph.MulScalar(graph.Iota(g, table, 3), -math.Log(base)/float64(half)))
	places := graph.InsertAxes(graph.ConvertDType(positions, dtypes.Float32), -1, -1)
	angle := graph.Mul(graph.BroadcastToShape(places, table), speed)
	cos, sin := graph.Cos(angle), graph.Sin(angle)
	slice := func(start, end int) *graph.Node {
		axisSlice := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(start, end))
		return graph.ConvertDType(axisSlice, dtypes.Float32)
	}
	a, b := slice(0, half), slice(half, 2*half)
	return graph.ConvertDType(graph.Concatenate([]*graph.Node{
		graph.Sub(graph.Mul(a, cos), graph.Mul(b, sin)),
		graph.Add(graph.Mul(b, cos), graph.Mul(a, sin)),
	}, -1), x.DType())
}
