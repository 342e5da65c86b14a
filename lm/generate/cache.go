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
// receives a Cache while it generates, and nil while it is trained. Attend, Positions and Update
// support a nil Cache, which represents complete sequences that start at position 0. Layer,
// SetLayer, Slot and ValidSlots access the cache itself and panic with an error on nil. A Cache
// belongs to one trace of a model.
type Cache struct {
	rc *strategy.ReplicaContext
	*deviceState
	tokens  int         // number of current tokens of each row
	slot    *graph.Node // cache slot of the first current token, an int32 scalar
	padding *graph.Node // number of padding slots before a row's first token, int32 [rows]
	calls   int         // number of calls of Update and SetLayer in the trace
	inLoop  bool        // a call was in a loop, and represents all layers of the loop
}

// Positions returns the position of each token in its row, as an int32 tensor of the shape of
// tokens, [rows, n]. Without a cache the positions are 0 to n-1. Pass them to position tables and
// rotary embeddings.
func (c *Cache) Positions(tokens *graph.Node) *graph.Node {
	if tokens.Rank() != 2 {
		panicValueError("positions", "pass the tokens that the model received", "tokens of shape %s, not [rows, n]",
			tokens.Shape())
	}
	g, shape := tokens.Graph(), shapes.Make(dtypes.Int32, tokens.Shape().Dimensions...)
	places := graph.Iota(g, shape, 1)
	if c == nil {
		return places
	}
	first := graph.Sub(graph.BroadcastToDims(c.slot, shape.Dimensions[0]), c.padding)
	places = graph.Add(places, graph.BroadcastToShape(graph.InsertAxes(first, -1), shape))
	return graph.Max(places, graph.ZerosLike(places)) // padding has none
}

// Update adds the keys and values of a layer's tokens, [rows, n, heads, size] each, to the cache.
// It returns all keys and values of the layer, [rows, heads, m, size], in the dtype of its
// arguments. It also returns the attention mask, booleans [rows, n, m], which is true for the keys
// that a token attends to. m is n without a cache, and the length of the cache with one.
//
// Each layer must call Update or [Cache.Attend] once, and the layers must be called in the same
// order in each pass. The cache stores keys and values in Options.DType.
func (c *Cache) Update(keys, values *graph.Node) (allKeys, allValues, mask *graph.Node) {
	checkHeads(keys, values)
	g, shape := keys.Graph(), keys.Shape().Dimensions
	byHeads := func(x *graph.Node) *graph.Node { return graph.TransposeAllAxes(x, 0, 2, 1, 3) }
	if c == nil {
		return byHeads(keys), byHeads(values), causalMask(keys, values)
	}
	if want := []int{c.rows, c.tokens, c.opts.KeyHeads, c.opts.HeadSize}; !slices.Equal(shape, want) {
		panicValueError("update of the cache", "set Options.KeyHeads and Options.HeadSize to those of the model",
			"keys of %v, where the cache has room for %v (rows, tokens, heads, size)", shape, want)
	}
	layer := c.nextLayer(g)
	zero := graph.Const(g, int32(0))
	start := []*graph.Node{layer, zero, zero, c.slot, zero}
	add := func(v *strategy.Variable, x *graph.Node) *graph.Node {
		x = graph.InsertAxes(graph.ConvertDType(byHeads(x), c.opts.DType), 0)
		all := c.rc.Assign(v, graph.DynamicUpdateSlice(c.rc.Read(v), x, start))
		sizes := append([]int{1}, v.Shape().Dimensions[1:]...)
		layerValues := graph.DynamicSlice(all, []*graph.Node{layer, zero, zero, zero, zero}, sizes)
		return graph.ConvertDType(graph.Squeeze(layerValues, 0), keys.DType())
	}
	return add(c.keys, keys), add(c.values, values), c.attentionMask(g)
}

// attentionMask returns the attention mask, booleans [rows, tokens, slots]. A token attends to the
// slots from its row's first token up to its own slot.
func (c *Cache) attentionMask(g *graph.Graph) *graph.Node {
	shape := shapes.Make(dtypes.Int32, c.rows, c.tokens, c.length)
	slots := graph.Iota(g, shape, 2)
	last := graph.Add(graph.Iota(g, shape, 1), graph.BroadcastToShape(c.slot, shape))
	first := graph.BroadcastToShape(graph.InsertAxes(c.padding, -1, -1), shape)
	return graph.LogicalAnd(graph.LessOrEqual(slots, last), graph.GreaterOrEqual(slots, first))
}

// nextLayer returns the index of the current layer and increments it. The index is a variable on
// the device, so that it also counts the iterations of a loop over layers.
func (c *Cache) nextLayer(g *graph.Graph) *graph.Node {
	c.calls++
	if gate, ok := g.Backend().(region.Target); ok && len(gate.OpenPasses()) > 0 {
		c.inLoop = true
	}
	layer := c.rc.Read(c.layer)
	c.rc.Assign(c.layer, graph.AddScalar(layer, 1))
	return layer
}

func (c *Cache) resetLayers() {
	c.calls, c.inLoop = 0, false
	for _, v := range []*strategy.Variable{c.keys, c.values} {
		c.rc.Read(v)
	}
	c.rc.Assign(c.layer, int32(0))
}

// checkCalls panics with an error unless the model has used the cache in each layer. It cannot
// check layers in a loop, because only the running program counts them.
func (c *Cache) checkCalls() {
	switch {
	case c.calls == 0:
		panicValueError("model", "call Cache.Attend, or Cache.Update, in each of its attention layers",
			"it does not use the cache")
	case !c.inLoop && c.calls != c.opts.Layers:
		panic(layerCountError(c.calls, c.opts.Layers))
	}
}

func layerCountError(calls, layers int) error {
	return valueError("model", "set Options.Layers to the number of attention layers",
		"%d layers used the cache, which has room for %d", calls, layers)
}

func valueError(subject, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "generate", Subject: subject, Reason: fmt.Sprintf(reason, args...), Hint: hint,
		Class: errkind.ValueError}
}

// panicValueError panics with a ValueError, which the tracer of the model returns as an error.
func panicValueError(subject, hint, reason string, args ...any) {
	panic(valueError(subject, hint, reason, args...))
}
