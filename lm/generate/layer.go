package generate

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Layer returns the keys and values of a layer in the cache, [rows, key heads, length, size] each,
// in Options.DType. Layers are counted from 0. Layer, [Cache.SetLayer], [Cache.Slot] and
// [Cache.ValidSlots] are for models whose attention updates the cache itself. They panic with an
// error on a nil cache.
func (c *Cache) Layer(layer int) (keys, values *graph.Node) {
	c.checkCall("Layer", layer)
	read := func(v *strategy.Variable) *graph.Node {
		return graph.Squeeze(graph.Slice(c.rc.Read(v), graph.AxisElem(layer)), 0)
	}
	return read(c.keys), read(c.values)
}

// SetLayer replaces the keys and values of a layer. They must have the shapes that [Cache.Layer]
// returns. A model calls SetLayer once for each layer, instead of [Cache.Update].
func (c *Cache) SetLayer(layer int, keys, values *graph.Node) {
	c.checkCall("SetLayer", layer)
	g := keys.Graph()
	want := shapes.Make(c.opts.DType, c.keys.Shape().Dimensions[1:]...)
	if !keys.Shape().Equal(want) || !values.Shape().Equal(want) {
		panicValueError("layer of the cache", "pass the updated results of Cache.Layer",
			"keys of shape %s and values of %s, not %s", keys.Shape(), values.Shape(), want)
	}
	zero := graph.Const(g, int32(0))
	start := []*graph.Node{graph.Const(g, int32(layer)), zero, zero, zero, zero}
	set := func(v *strategy.Variable, x *graph.Node) {
		c.rc.Assign(v, graph.DynamicUpdateSlice(c.rc.Read(v), graph.InsertAxes(x, 0), start))
	}
	set(c.keys, keys)
	set(c.values, values)
	c.nextLayer(g)
}

// Slot returns the cache slot of the first current token, an int32 scalar. It is the same for all
// rows, because the padding before a row's first token also occupies slots.
func (c *Cache) Slot() *graph.Node {
	c.checkCall("Slot", 0)
	return c.slot
}

// ValidSlots returns booleans [rows, length], which are false for padding before a row's first
// token. They are true for all other slots, including the slots after the current tokens.
func (c *Cache) ValidSlots() *graph.Node {
	c.checkCall("ValidSlots", 0)
	shape := shapes.Make(dtypes.Int32, c.rows, c.length)
	return graph.GreaterOrEqual(graph.Iota(c.slot.Graph(), shape, 1),
		graph.BroadcastToShape(graph.InsertAxes(c.padding, -1), shape))
}

// checkCall panics with an error if the cache is nil or the layer is invalid.
func (c *Cache) checkCall(method string, layer int) {
	if c == nil {
		panicValueError("Cache."+method, "call it only if the cache is not nil", "the cache is nil, as in training")
	}
	if layer < 0 || layer >= c.opts.Layers {
		panicValueError("Cache."+method, "count from 0, and set Options.Layers", "layer %d of %d", layer, c.opts.Layers)
	}
}
