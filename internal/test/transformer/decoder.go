package transformer

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// decoder builds the step of a config whose default values are set.
type decoder struct {
	Config
	rc *strategy.ReplicaContext
	// cache is the key-value cache of a generator. positions contains the positions of the current
	// tokens. Both are nil if the input is a complete sequence.
	cache     *generate.Cache
	positions *Node
}

// values maps the variable names of one part of the model to nodes.
type values map[string]*Node

// Loss returns the mean cross-entropy of the next tokens of a replica. It is the loss of
// [Config.Step].
func (c Config) Loss(rc *strategy.ReplicaContext, in []*Node) *Node {
	tokens, labels := graph.Slice(in[0], graph.AxisRange(), graph.AxisRange(0, c.Sequence)),
		graph.Slice(in[0], graph.AxisRange(), graph.AxisRange(1))
	return crossEntropy(c.Logits(rc, tokens, nil), labels)
}

// Logits returns the Float32 logits of the next tokens of a replica. It is a generate.ModelFunc. A
// row has at most Config.Sequence tokens.
func (c Config) Logits(rc *strategy.ReplicaContext, tokens *Node, cache *generate.Cache) *Node {
	d := decoder{Config: c.filled(), rc: rc, cache: cache}
	if cache != nil {
		d.positions = cache.Positions(tokens)
	}
	seed := 1
	values := func(of []variable) values {
		defer func() { seed += len(of) }()
		return d.values(rc.Scope(), of, seed)
	}
	v := values(d.first())
	x := graph.Gather(d.compute(v["emb"]), graph.InsertAxes(tokens, -1))
	if !c.Llama {
		table := d.compute(v["pos"])
		if cache != nil {
			table = graph.Gather(table, graph.InsertAxes(d.positions, -1))
		} else {
			table = graph.InsertAxes(graph.Slice(table, graph.AxisRange(0, tokens.Shape().Dim(1))), 0)
		}
		x = graph.Add(x, table)
	}
	x = logical.Replicate(x)
	x = d.layers(x, seed)
	seed += c.Layers * len(d.layer())
	v = values(d.last())
	if c.Llama {
		x = d.rmsNorm(x, v["gf"])
	} else {
		x = d.layerNorm(x, v["gf"], v["cf"])
	}
	logits := d.split(graph.Einsum("bsd,dv->bsv", x, d.compute(v["head"])), 2)
	return graph.ConvertDType(logits, dtypes.Float32)
}

// Generator returns the options of a generator for the model.
func (c Config) Generator() generate.Options {
	c = c.filled()
	return generate.Options{Layers: c.Layers, KeyHeads: c.KeyHeads, HeadSize: c.Width / c.Heads, Vocabulary: c.Vocabulary,
		MaxLength: c.Sequence, DType: c.Compute}
}

// crossEntropy returns the mean cross-entropy. It does not use a gather, because the vocabulary is
// sharded over the logical devices.
func crossEntropy(logits, labels *Node) *Node {
	largest := graph.StopGradient(graph.ReduceAndKeep(logits, graph.ReduceMax, -1))
	sum := graph.Log(graph.ReduceSum(graph.Exp(graph.Sub(logits, largest)), -1))
	sum = graph.Add(sum, graph.Squeeze(largest, -1))
	indices := logits.Shape().Clone()
	indices.DType = labels.DType()
	labelled := graph.Equal(graph.BroadcastToShape(graph.InsertAxes(labels, -1), indices), graph.Iota(logits.Graph(),
		indices, -1))
	chosen := graph.ReduceSum(graph.Where(labelled, logits, graph.ZerosLike(logits)), -1)
	return graph.ReduceAllMean(graph.Sub(sum, chosen))
}

// values creates the variables of a part of the model in a scope. Their seeds are consecutive and
// start at seed.
func (d decoder) values(scope *model.Scope, of []variable, seed int) values {
	all := values{}
	for i, v := range of {
		all[v.name] = v.make(scope, seed+i).NodeValue(d.rc.Graph())
	}
	return all
}

// compute converts x to the dtype of activations.
func (d decoder) compute(x *Node) *Node {
	if x.DType() == d.Compute {
		return x
	}
	return graph.ConvertDType(x, d.Compute)
}

// split splits a dimension of x over the logical devices.
func (d decoder) split(x *Node, dim int) *Node {
	parts := make([]int, x.Rank())
	for i := range parts {
		parts[i] = 1
	}
	parts[dim] = d.rc.Strategy().NumLogicalDevices()
	return logical.Split(x, parts...)
}

// weights returns the causal attention weights. scores has the shape [..., query, key].
func (d decoder) weights(scores *Node) *Node {
	g, n := scores.Graph(), scores.Shape().Dim(-1)
	places := shapes.Make(dtypes.Int32, n, n)
	seen := graph.BroadcastToDims(graph.ExpandLeftToRank(graph.LessOrEqual(graph.Iota(g, places, 1),
		graph.Iota(g, places, 0)), scores.Rank()),
		scores.Shape().Dimensions...)
	scores = graph.Where(seen, scores, graph.Scalar(g, scores.DType(), -1e9))
	return d.compute(graph.Softmax(scores, -1))
}
