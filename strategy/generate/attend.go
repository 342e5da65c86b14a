package generate

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// Attend returns what the queries of a layer read: for each head of a token the mean of the values
// of the tokens up to its own, weighted by the softmax of the products of query and keys over the
// root of the head's size. Queries are [rows, n, heads, size], keys and values
// [rows, n, key heads, size], and the result has the shape and dtype of the queries. The number of
// heads is a multiple of that of key heads: queries h*heads/keyHeads and on read key head h.
//
// Scores and softmax are Float32. With a cache the layer's keys and values are added to it first;
// see [Cache.Update]. Rotary embeddings are applied to queries and keys before.
func (c *Cache) Attend(queries, keys, values *graph.Node) *graph.Node {
	if queries.Rank() != 4 || keys.Rank() != 4 || queries.Shape().Dim(2)%keys.Shape().Dim(2) != 0 {
		fail("attention", "give queries [rows, tokens, heads, size], with a multiple of the heads of keys",
			"queries of shape %s and keys of %s", queries.Shape(), keys.Shape())
	}
	shape := queries.Shape().Dimensions
	rows, n, heads, size := shape[0], shape[1], shape[2], shape[3]
	keyHeads := keys.Shape().Dim(2)
	k, v, mask := c.Update(keys, values)
	q := graph.Reshape(queries, rows, n, keyHeads, heads/keyHeads, size)
	scores := graph.ConvertDType(graph.Einsum("bqhgk,bhsk->bhgqs", q, k), dtypes.Float32)
	scores = graph.DivScalar(scores, math.Sqrt(float64(size)))
	mask = graph.BroadcastToDims(graph.InsertAxes(mask, 1, 1), scores.Shape().Dimensions...)
	scores = graph.Where(mask, scores, graph.Scalar(scores.Graph(), dtypes.Float32, -1e30))
	weights := graph.ConvertDType(graph.Softmax(scores, -1), queries.DType())
	return graph.Reshape(graph.Einsum("bhgqs,bhsk->bqhgk", weights, v), shape...)
}
