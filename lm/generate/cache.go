package generate

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Cache stores the keys and values of earlier tokens for the attention layers of a model. A model
// receives a Cache while it generates, and nil while it is trained. Attend, Positions and Update work
// on nil, which represents complete sequences that start at position 0. Layer, SetLayer, Slot and
// Filled access the cache itself and panic with an error on nil. A Cache belongs to one trace of a
// model.
type Cache struct {
	rc *strategy.ReplicaContext
	*state
	tokens int         // how many of each row are at hand
	slot   *graph.Node // where the first of them goes in the cache, an int32 scalar
	pad    *graph.Node // how many slots before its first token a row leaves out, int32 [rows]
	calls  int         // of Update, while the model is traced
	looped bool        // one of them was in a loop, and stands for as many as the loop has layers
}

// Positions returns the place of each token in its row, an int32 tensor of the shape of tokens,
// [rows, n]: 0 to n-1 without a cache. Tables of positions and rotary embeddings take it.
func (c *Cache) Positions(tokens *graph.Node) *graph.Node {
	if tokens.Rank() != 2 {
		fail("positions", "give the tokens that the model received", "tokens of shape %s, not [rows, n]", tokens.Shape())
	}
	g, shape := tokens.Graph(), shapes.Make(dtypes.Int32, tokens.Shape().Dimensions...)
	places := graph.Iota(g, shape, 1)
	if c == nil {
		return places
	}
	first := graph.Sub(graph.BroadcastToDims(c.slot, shape.Dimensions[0]), c.pad)
	places = graph.Add(places, graph.BroadcastToShape(graph.InsertAxes(first, -1), shape))
	return graph.Max(places, graph.ZerosLike(places)) // padding has none
}

// Update adds the keys and values of a layer's tokens, [rows, n, heads, size] each, to the cache.
// It returns the keys and values that the layer attends to, [rows, heads, m, size], and which of
// them each token sees, a mask of booleans [rows, n, m]. m is n without a cache, and the cache's
// length with one. Each layer calls Update once, or [Cache.Attend], which does; the layers of a
// model call it in the same order each time.
//
// The returned keys and values have the dtype of those that were given; the cache keeps them in
// Options.DType.
func (c *Cache) Update(keys, values *graph.Node) (allKeys, allValues, mask *graph.Node) {
	checkHeads(keys, values)
	g, shape := keys.Graph(), keys.Shape().Dimensions
	byHeads := func(x *graph.Node) *graph.Node { return graph.TransposeAllAxes(x, 0, 2, 1, 3) }
	if c == nil {
		return byHeads(keys), byHeads(values), causal(keys, values)
	}
	if want := []int{c.rows, c.tokens, c.opts.KeyHeads, c.opts.HeadSize}; !slices.Equal(shape, want) {
		fail("update of the cache", "set Options.KeyHeads and Options.HeadSize to those of the model",
			"keys of %v, where the cache has room for %v (rows, tokens, heads, size)", shape, want)
	}
	layer := c.nextLayer(g)
	zero := graph.Const(g, int32(0))
	at := []*graph.Node{layer, zero, zero, c.slot, zero}
	add := func(v *strategy.Variable, x *graph.Node) *graph.Node {
		x = graph.InsertAxes(graph.ConvertDType(byHeads(x), c.opts.DType), 0)
		all := c.rc.Assign(v, graph.DynamicUpdateSlice(c.rc.Read(v), x, at))
		sizes := append([]int{1}, v.Shape().Dimensions[1:]...)
		one := graph.DynamicSlice(all, []*graph.Node{layer, zero, zero, zero, zero}, sizes)
		return graph.ConvertDType(graph.Squeeze(one, 0), keys.DType())
	}
	return add(c.keys, keys), add(c.values, values), c.mask(g)
}

// mask says which slots each token sees: its own and those before it, from its row's first token
// on.
func (c *Cache) mask(g *graph.Graph) *graph.Node {
	shape := shapes.Make(dtypes.Int32, c.rows, c.tokens, c.length)
	slots := graph.Iota(g, shape, 2)
	last := graph.Add(graph.Iota(g, shape, 1), graph.BroadcastToShape(c.slot, shape))
	first := graph.BroadcastToShape(graph.InsertAxes(c.pad, -1, -1), shape)
	return graph.LogicalAnd(graph.LessOrEqual(slots, last), graph.GreaterOrEqual(slots, first))
}

// nextLayer returns the number of the layer at hand. It is counted by the running program, so that
// the layers of a loop have numbers of their own.
func (c *Cache) nextLayer(g *graph.Graph) *graph.Node {
	c.calls++
	if gate, ok := g.Backend().(region.Target); ok && len(gate.Open()) > 0 {
		c.looped = true
	}
	layer := c.rc.Read(c.layer)
	c.rc.Assign(c.layer, graph.AddScalar(layer, 1))
	return layer
}

// begin sets the cache up for a pass of the model.
func (c *Cache) begin() {
	c.calls, c.looped = 0, false
	for _, v := range []*strategy.Variable{c.keys, c.values} {
		c.rc.Read(v)
	}
	c.rc.Assign(c.layer, int32(0))
}

// check refuses a model that did not fill the cache. Layers of a loop are counted by the running
// program.
func (c *Cache) check() {
	switch {
	case c.calls == 0:
		fail("model", "call Cache.Attend, or Cache.Update, in each of its attention layers", "it does not use the cache")
	case !c.looped && c.calls != c.opts.Layers:
		panic(layersFault(c.calls, c.opts.Layers))
	}
}

func layersFault(calls, layers int) error {
	return fault("model", "set Options.Layers to the number of attention layers", "%d layers used the cache, which has room for %d", calls, layers)
}

// fault is an error of this package, of kind ValueError.
func fault(subject, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "generate", Subject: subject, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// fail panics with an error, as graph functions do; the trace returns it.
func fail(subject, hint, reason string, args ...any) { panic(fault(subject, hint, reason, args...)) }
