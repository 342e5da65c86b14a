package corpus

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// text contains the sizes of a transformer over tokens.
type text struct {
	rows, length, vocabulary, width, heads, layers int
	dtype                                          dtypes.DType
}

// block applies a transformer layer: attention and a feed-forward network, each with a
// normalization before it and a residual connection.
func block(rc *strategy.ReplicaContext, name string, x, keys *Node, heads int, causal bool) *Node {
	width := x.Shape().Dim(-1)
	h := norm.LayerNorm(rc.Scope(name, "norm1"), x, -1).Done()
	if keys == nil {
		keys = h
	}
	a := attention.MultiHeadAttention(rc.Scope(name, "attention"), h, keys, keys, heads,
		width/heads).WithCausalMask(causal).Done()
	x = graph.Add(x, a)
	h = norm.LayerNorm(rc.Scope(name, "norm2"), x, -1).Done()
	h = layers.Dense(rc.Scope(name, "up"), h, true, 4*width)
	h = activation.Gelu(logical.Split(h, 1, 1, rc.Strategy().NumLogicalDevices()))
	h = layers.Dense(rc.Scope(name, "down"), h, true, width)
	return graph.Add(x, h)
}

// embedded returns the sum of token and position embeddings.
func embedded(rc *strategy.ReplicaContext, tokens *Node, name string, c text) *Node {
	x := layers.Embedding(rc.Scope(name), tokens, c.dtype, c.vocabulary, c.width)
	positions := rc.Scope(name, "positions").VariableWithShape("positions", shapes.Make(c.dtype, c.length,
		c.width)).NodeValue(rc.Graph())
	return graph.Add(x, graph.InsertAxes(positions, 0))
}

// tokenLoss returns the mean cross-entropy of the next tokens.
func tokenLoss(labels, logits *Node) *Node {
	logits = graph.ConvertDType(logits, dtypes.Float32)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*Node{graph.InsertAxes(labels, -1)},
		[]*Node{logits}))
}

// gatherRows selects rows of each example. x has the shape [examples, rows, width], and of contains
// row indices of the shape [examples, n].
func gatherRows(x, of *Node) *Node {
	examples, n, width := x.Shape().Dim(0), x.Shape().Dim(1), x.Shape().Dim(2)
	of = graph.ConvertDType(of, dtypes.Int32)
	first := graph.MulScalar(graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, examples, 1), 0), float64(n))
	flat := graph.Reshape(graph.Add(of, first), -1, 1)
	return graph.Reshape(graph.Gather(graph.Reshape(x, examples*n, width), flat), examples, of.Shape().Dim(1), width)
}

func blockRules(p int) logical.Rules {
	return logical.Rules{columns(p, `up/dense/weights`), rows(p, `down/dense/weights`)}
}

// gpt returns a decoder that predicts the next token.
func gpt(c text) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: func(p int) logical.Rules { return append(blockRules(p), columns(p, `/tokens/embeddings`)) },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := embedded(rc, in[0], "tokens", c)
			for i := range c.layers {
				x = block(rc, fmt.Sprintf("layer%d", i), x, nil, c.heads, true)
			}
			x = norm.LayerNorm(rc.Scope("norm"), x, -1).Done()
			return tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), x, false, c.vocabulary))
		},
	}
}

// bert returns an encoder that predicts masked tokens. It gathers the positions of these tokens.
func bert(c text, masked int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(2, c.rows, c.length), ints(c.length, c.rows, masked),
			ints(c.vocabulary, c.rows, masked)},
		Splits: blockRules,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := embedded(rc, in[0], "tokens", c)
			x = graph.Add(x, layers.Embedding(rc.Scope("segments"), in[1], c.dtype, 2, c.width))
			x = norm.LayerNorm(rc.Scope("norm"), x, -1).Done()
			for i := range c.layers {
				x = block(rc, fmt.Sprintf("layer%d", i), x, nil, c.heads, false)
			}
			x = gatherRows(x, in[2])
			x = activation.Gelu(layers.Dense(rc.Scope("head"), x, true, c.width))
			// The output layer shares the embedding table.
			table := rc.Scope("tokens").VariableWithShape("embeddings", shapes.Make(c.dtype, c.vocabulary,
				c.width)).NodeValue(rc.Graph())
			return tokenLoss(in[3], graph.Einsum("bmd,vd->bmv", x, table))
		},
	}
}

// translator returns an encoder and a decoder with cross-attention.
func translator(c text) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows,
			c.length)},
		Splits: blockRules,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			source, x := embedded(rc, in[0], "source", c), embedded(rc, in[1], "target", c)
			for i := range c.layers {
				source = block(rc, fmt.Sprintf("encoder%d", i), source, nil, c.heads, false)
			}
			for i := range c.layers {
				x = block(rc, fmt.Sprintf("self%d", i), x, nil, c.heads, true)
				x = block(rc, fmt.Sprintf("cross%d", i), x, source, c.heads, false)
			}
			return tokenLoss(in[2], layers.Dense(rc.Scope("vocabulary"), x, false, c.vocabulary))
		},
	}
}

// sampler returns a function that samples the next token of each row from the k most likely tokens.
func sampler(c text, k int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), floats(c.rows, k)},
		Splits: blockRules,
		Forward: func(rc *strategy.ReplicaContext, in []*Node) []*Node {
			x := embedded(rc, in[0], "tokens", c)
			for i := range c.layers {
				x = block(rc, fmt.Sprintf("layer%d", i), x, nil, c.heads, true)
			}
			last := graph.Squeeze(graph.Slice(x, graph.AxisRange(), graph.AxisElem(c.length-1)), 1)
			logits := graph.ConvertDType(layers.Dense(rc.Scope("vocabulary"), last, false, c.vocabulary), dtypes.Float32)
			values, indices := graph.TopK(logits, k, -1)
			drawn := graph.ArgMax(graph.Add(graph.LogSoftmax(values), in[1]), -1)
			next := gatherRows(graph.InsertAxes(indices, -1), graph.InsertAxes(drawn, -1))
			return []*Node{next, graph.ReduceAllMean(graph.ReduceMax(graph.Softmax(logits), -1))}
		},
	}
}
