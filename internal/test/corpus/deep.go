package corpus

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual/moe"
	"github.com/tpustrategy/tpustrategy/lowering/manual/pipeline"
	"github.com/tpustrategy/tpustrategy/lowering/manual/ring"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// deep returns models of realistic depth. A loop in the program runs their layers or their time
// steps.
func deep() []Entry {
	small := text{rows: 8, length: 8, vocabulary: 32, width: 16, heads: 8, layers: 3, dtype: full}
	steps := func(hidden int) func(text) Program { return func(c text) Program { return recurrentLoop(c, hidden) } }
	return []Entry{
		made("deep-vit", 4, "v6e:2x4", func() Program { return deepVit(pictures{256, 224, 1000}, 16, 1024, 16, 24) },
			func() Program { return deepVit(pictures{8, 32, 16}, 8, 16, 8, 3) }).quick(),
		sized("deep-translator", 2, "v6e:2x4", deepTranslator, text{32, 512, 32000, 1024, 16, 12, half}, small).quick(),
		sized("deep-experts", 2, "v5p:2x2x2", deepExperts, text{8, 2048, 32000, 2048, 16, 16, half}, small).own().quick(),
		sized("deep-ring", 2, "v5p:2x2x2", deepRing, text{2, 32768, 32000, 2048, 16, 24, half}, small).quick(),
		sized("deep-pipeline", 2, "v5p:2x2x2", deepPipeline, text{64, 1024, 32000, 2048, 16, 8, half},
			text{rows: 8, length: 8, vocabulary: 32, width: 16, heads: 8, layers: 8, dtype: full}).quick(),
		made("lstm-loop", 4, "v5e:2x4", func() Program { return steps(1024)(text{64, 512, 33278, 1024, 0, 2, full}) },
			func() Program { return steps(8)(text{8, 4, 32, 8, 0, 2, full}) }).quick(),
	}
}

// deepLayer is [block] as a layer of a loop. keys is the input of the cross-attention, or nil for
// self-attention.
func deepLayer(scope *model.Scope, x, keys *Node, heads, logicalDevices int, causal bool) *Node {
	width := x.Shape().Dim(-1)
	h := norm.LayerNorm(scope.In("norm1"), x, -1).Done()
	if keys == nil {
		keys = h
	}
	x = graph.Add(x, attention.MultiHeadAttention(scope.In("attention"), h, keys, keys, heads,
		width/heads).WithCausalMask(causal).Done())
	h = norm.LayerNorm(scope.In("norm2"), x, -1).Done()
	h = activation.Gelu(logical.Split(layers.Dense(scope.In("up"), h, true, 4*width), 1, 1, logicalDevices))
	return graph.Add(x, layers.Dense(scope.In("down"), h, true, width))
}

// stackRules shards the variables of [deepLayer] over p logical devices.
func stackRules(p int) logical.Rules {
	return logical.Rules{logical.Match(`up/dense/weights`, logical.SplitInto(1, 1, p)), logical.Match(`down/dense/weights`,
		logical.SplitInto(1, p, 1))}
}

// deepVit returns a vision transformer.
func deepVit(c pictures, patch, width, heads, depth int) Program {
	return c.classified(stackRules, func(rc *strategy.ReplicaContext, x *Node) *Node {
		x = loop.Layers(rc.Scope("layers"), depth, patches(rc, x, patch, width), func(scope *model.Scope, x *Node) *Node {
			return deepLayer(scope, x, nil, heads, rc.Strategy().NumLogicalDevices(), false)
		}, loop.Options{Keep: remat.Products()})
		return layers.Dense(rc.Scope("classes"), graph.ReduceMean(x, 1), true, c.classes)
	})
}

// deepTranslator returns an encoder and a decoder with cross-attention in each layer.
func deepTranslator(c text) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows,
			c.length)},
		Splits: stackRules,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			p := rc.Strategy().NumLogicalDevices()
			source := loop.Layers(rc.Scope("encoder"), c.layers, embedded(rc, in[0], "source", c), func(scope *model.Scope,
				x *Node) *Node {
				return deepLayer(scope, x, nil, c.heads, p, false)
			}, loop.Options{Keep: remat.Nothing()})
			out := loop.Run(rc.Scope("decoder"), c.layers, loop.Arguments{Carried: []*Node{embedded(rc, in[1], "target", c)},
				Shared: []*Node{source}},
				func(l *loop.Layer) loop.Results {
					x := deepLayer(l.Scope.In("self"), l.Carried[0], nil, c.heads, p, true)
					return loop.Results{Carried: []*Node{deepLayer(l.Scope.In("cross"), x, l.Shared[0], c.heads, p, false)}}
				}, loop.Options{Keep: remat.Nothing()})
			return tokenLoss(in[2], layers.Dense(rc.Scope("vocabulary"), out.Carried[0], false, c.vocabulary))
		},
	}
}

// decoder returns a language model. A loop runs the function layer for each of its layers, and each
// layer adds an auxiliary term to the loss.
func (c text) decoder(splits func(p int) logical.Rules, layer func(rc *strategy.ReplicaContext, scope *model.Scope,
	x *Node) (y, term *Node)) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: splits,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			out := loop.Run(rc.Scope("layers"), c.layers, loop.Arguments{Carried: []*Node{embedded(rc, in[0], "tokens", c)}},
				func(l *loop.Layer) loop.Results {
					y, term := layer(rc, l.Scope, l.Carried[0])
					return loop.Results{Carried: []*Node{y}, Summed: []*Node{term}}
				}, loop.Options{Keep: remat.Nothing()})
			loss := tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), norm.LayerNorm(rc.Scope("norm"), out.Carried[0],
				-1).Done(), false, c.vocabulary))
			return graph.Add(loss, graph.MulScalar(out.Summed[0], 0.01/float64(c.layers)))
		},
	}
}

// selfAttention applies the self-attention of a decoder layer. The weights have a dimension for the
// heads.
func selfAttention(rc *strategy.ReplicaContext, scope *model.Scope, x *Node, c text,
	attend func(q, k, v *Node) *Node) *Node {
	g, of := rc.Graph(), []int{c.width, c.heads, c.width / c.heads}
	h := norm.LayerNorm(scope.In("norm1"), x, -1).Done()
	project := func(name string) *Node {
		return graph.Einsum("bld,dhk->blhk", h, scope.In("%s", name).VariableWithShape("weights",
			shapes.Make(c.dtype, of...)).NodeValue(g))
	}
	out := scope.In("out").VariableWithShape("weights", shapes.Make(c.dtype, of[1], of[2], of[0])).NodeValue(g)
	return graph.Add(x, graph.Einsum("blhk,hkd->bld", attend(project("query"), project("key"), project("value")), out))
}

// causal computes causal attention.
func causal(q, k, v *Node) *Node {
	n := q.Shape().Dim(1)
	scores := graph.ConvertDType(graph.Einsum("bqhk,bshk->bhqs", q, k), dtypes.Float32)
	scores = graph.MulScalar(scores, 1/math.Sqrt(float64(q.Shape().Dim(3))))
	mask := graph.BroadcastPrefix(graph.LowerTriangular(q.Graph(), n), scores.Shape().Dim(0), scores.Shape().Dim(1))
	weights := graph.ConvertDType(graph.MaskedSoftmax(scores, mask, -1), v.DType())
	return graph.Einsum("bhqs,bshk->bqhk", weights, v)
}

// deepExperts returns a decoder with eight experts in each layer. The experts are sharded over the
// logical devices, and each token is sent to two experts.
func deepExperts(c text) Program {
	const experts = 8
	return c.decoder(func(p int) logical.Rules {
		return logical.Rules{logical.Match(`/experts/`, logical.SplitInto(1, p, 1, 1))}
	},
		func(rc *strategy.ReplicaContext, scope *model.Scope, x *Node) (y, term *Node) {
			x = selfAttention(rc, scope, x, c, causal)
			of := scope.In("experts")
			weights := func(name string, dims ...int) *Node {
				return of.VariableWithShape(name, shapes.Make(c.dtype, dims...)).NodeValue(rc.Graph())
			}
			gate := scope.In("router").VariableWithShape("weights", shapes.Make(c.dtype, c.width, experts)).NodeValue(rc.Graph())
			tokens := graph.Reshape(norm.LayerNorm(scope.In("norm2"), x, -1).Done(), -1, c.width)
			out := moe.Layer(tokens, gate, []*Node{weights("up", experts, c.width, 2*c.width), weights("down", experts,
				2*c.width, c.width)},
				func(x *Node, w []*Node) *Node {
					return graph.Einsum("esh,ehd->esd", activation.Gelu(graph.Einsum("esd,edh->esh", x, w[0])), w[1])
				}, moe.Options{Axis: logical.LogicalAxis, TopK: 2, CapacityFactor: 2, Groups: 8})
			return graph.Add(x, graph.Reshape(out.Output, x.Shape().Dimensions...)), out.BalanceLoss
		})
}

// deepRing returns a decoder over long sequences that are sharded over the logical devices.
func deepRing(c text) Program {
	return c.decoder(stackRules, func(rc *strategy.ReplicaContext, scope *model.Scope, x *Node) (y, term *Node) {
		p := rc.Strategy().NumLogicalDevices()
		x = logical.Split(x, 1, p, 1)
		x = selfAttention(rc, scope, x, c, func(q, k, v *Node) *Node {
			return ring.Attention(logical.LogicalAxis, q, k, v, ring.Options{Causal: true})
		})
		h := norm.LayerNorm(scope.In("norm2"), x, -1).Done()
		h = activation.Gelu(layers.Dense(scope.In("up"), h, true, 4*c.width))
		y = logical.Split(graph.Add(x, layers.Dense(scope.In("down"), h, true, c.width)), 1, p, 1)
		return y, graph.ConvertDType(graph.ReduceAllMean(graph.Square(y)), dtypes.Float32)
	})
}

// deepPipeline returns a decoder whose layers are pipeline stages on the logical devices.
func deepPipeline(c text) Program {
	shapesOf := map[string][]int{"query": {c.width, c.width}, "key": {c.width, c.width}, "value": {c.width, c.width},
		"out": {c.width, c.width},
		"up":  {c.width, 4 * c.width}, "down": {4 * c.width, c.width}}
	names := slices.Sorted(maps.Keys(shapesOf))
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: func(p int) logical.Rules { return logical.Rules{logical.Match(`/stages/`, logical.SplitInto(p, 1, 1))} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			var weights []*Node
			for _, name := range names {
				weights = append(weights, rc.Scope("stages").VariableWithShape(name, shapes.Make(c.dtype, append([]int{c.layers},
					shapesOf[name]...)...)).NodeValue(rc.Graph()))
			}
			x := pipeline.Run(logical.LogicalAxis, embedded(rc, in[0], "tokens", c), weights, func(x *Node, w []*Node) *Node {
				for i := range w[0].Shape().Dim(0) {
					of := map[string]*Node{}
					for j, name := range names {
						of[name] = graph.Squeeze(graph.SliceAxis(w[j], 0, graph.AxisElem(i)), 0)
					}
					x = c.plainLayer(x, of)
				}
				return x
			}, pipeline.Options{})
			return tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), x, false, c.vocabulary))
		},
	}
}

// plainLayer computes a decoder layer with the given weights. It creates no variables.
func (c text) plainLayer(x *Node, w map[string]*Node) *Node {
	normal := func(x *Node) *Node {
		wide := graph.ConvertDType(x, dtypes.Float32)
		wide = graph.Sub(wide, graph.ReduceAndKeep(wide, graph.ReduceMean, -1))
		wide = graph.Div(wide, graph.Sqrt(graph.AddScalar(graph.ReduceAndKeep(graph.Square(wide), graph.ReduceMean, -1),
			1e-5)))
		return graph.ConvertDType(wide, x.DType())
	}
	h := normal(x)
	heads := func(name string) *Node {
		return graph.Reshape(graph.Einsum("bld,de->ble", h, w[name]), x.Shape().Dim(0), x.Shape().Dim(1), c.heads, -1)
	}
	a := graph.Reshape(causal(heads("query"), heads("key"), heads("value")), x.Shape().Dimensions...)
	x = graph.Add(x, graph.Einsum("bld,de->ble", a, w["out"]))
	h = activation.Gelu(graph.Einsum("bld,dh->blh", normal(x), w["up"]))
	return graph.Add(x, graph.Einsum("blh,hd->bld", h, w["down"]))
}

// recurrentLoop returns a language model of LSTM layers. A loop runs the time steps.
func recurrentLoop(c text, hidden int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: func(p int) logical.Rules {
			return logical.Rules{columns(p, `/tokens/embeddings`), columns(p, `/vocabulary/dense/weights`)}
		},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := graph.TransposeAllAxes(layers.Embedding(rc.Scope("tokens"), in[0], c.dtype, c.vocabulary, c.width), 1, 0, 2)
			for i := range c.layers {
				scope := rc.Scope(fmt.Sprintf("lstm%d", i))
				weights := func(name string, dims ...int) *Node {
					return scope.VariableWithShape(name, shapes.Make(c.dtype, dims...)).NodeValue(rc.Graph())
				}
				from := []*Node{weights("input", x.Shape().Dim(-1), 4*hidden), weights("state", hidden, 4*hidden),
					weights("bias", 1, 4*hidden)}
				zero := graph.Zeros(rc.Graph(), shapes.Make(c.dtype, x.Shape().Dim(1), hidden))
				x = loop.Run(nil, c.length, loop.Arguments{Carried: []*Node{zero, zero}, Shared: from, Sliced: []*Node{x}},
					func(l *loop.Layer) loop.Results {
						gates := graph.Add(graph.Einsum("bd,dh->bh", l.Sliced[0], l.Shared[0]), graph.Einsum("bd,dh->bh", l.Carried[0],
							l.Shared[1]))
						gates = graph.Add(gates, l.Shared[2])
						part := func(i int) *Node { return graph.SliceAxis(gates, 1, graph.AxisRange(i*hidden, (i+1)*hidden)) }
						cell := graph.Add(graph.Mul(graph.Sigmoid(part(1)), l.Carried[1]), graph.Mul(graph.Sigmoid(part(0)),
							graph.Tanh(part(2))))
						h := graph.Mul(graph.Sigmoid(part(3)), graph.Tanh(cell))
						return loop.Results{Carried: []*Node{h, cell}, Stacked: []*Node{h}}
					}, loop.Options{}).Stacked[0]
			}
			return tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), graph.TransposeAllAxes(x, 1, 0, 2), true, c.vocabulary))
		},
	}
}
