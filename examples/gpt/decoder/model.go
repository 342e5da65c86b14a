package decoder

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention/pos"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/loop"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Rules split the variables over the logical devices: attention by heads, the dense layers by
// their hidden features, the embedding and the head by tokens.
func Rules() logical.Rules {
	return logical.Rules{
		logical.Match(`embedding/embeddings`, logical.Over("logical", "")),
		logical.Match(`layers/(query|key|value|gate|up)/dense/weights`, logical.Over("", "", "logical")),
		logical.Match(`layers/(out|down)/dense/weights`, logical.Over("", "logical", "")),
		logical.Match(`head/dense/weights`, logical.Over("", "logical")),
	}
}

// Loss is a replica's loss: the mean cross-entropy, in nats, of each token of the windows in[0],
// int32 [rows, Sequence+1], given the tokens before it.
func (c Config) Loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	n := in[0].Shape().Dim(1) - 1
	logits := c.Logits(rc, graph.SliceAxis(in[0], 1, graph.AxisRange(0, n)))
	next := graph.InsertAxes(graph.SliceAxis(in[0], 1, graph.AxisRange(1)), -1)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{next}, []*graph.Node{logits}))
}

// Logits is the model: tokens [rows, n] to float32 [rows, n, Vocabulary].
func (c Config) Logits(rc *strategy.ReplicaContext, tokens *graph.Node) *graph.Node {
	scope := rc.Scope().WithInitializer(initializer.RandomNormalFn(rc.Scope(), 0.02))
	x := layers.Embedding(scope.In("embedding"), graph.InsertAxes(tokens, -1), dtypes.Float32, c.Vocabulary, c.Width)
	x = logical.Replicate(precision.Compute(x))
	x = loop.Layers(scope.In("layers"), c.Layers, x, c.layer, loop.Options{Keep: c.Keep})
	logits := layers.Dense(scope.In("head"), c.norm(scope.In("norm"), x), false, c.Vocabulary)
	return precision.Output(logical.SplitOver(logits, "", "", "logical"))
}

// layer is one layer, [rows, n, Width] to the same shape.
func (c Config) layer(scope *model.Scope, x *graph.Node) *graph.Node {
	x = graph.Add(x, c.attend(scope, c.norm(scope.In("norm1"), x)))
	h := c.norm(scope.In("norm2"), x)
	gate := activation.Swish(layers.Dense(scope.In("gate"), h, false, c.Hidden))
	h = graph.Mul(gate, layers.Dense(scope.In("up"), h, false, c.Hidden))
	return graph.Add(x, logical.Replicate(layers.Dense(scope.In("down"), h, false, c.Width)))
}

// attend is causal attention with rotary positions. KeyHeads heads of keys and values serve Heads
// heads of queries.
func (c Config) attend(scope *model.Scope, x *graph.Node) *graph.Node {
	rows, n, size := x.Shape().Dim(0), x.Shape().Dim(1), c.Width/c.Heads
	heads := func(name string, heads int) *graph.Node {
		return logical.SplitOver(layers.Dense(scope.In("%s", name), x, false, heads, size), "", "", "logical", "")
	}
	q, k, v := heads("query", c.Heads), heads("key", c.KeyHeads), heads("value", c.KeyHeads)
	q, k = graph.ConvertDType(q, dtypes.Float32), graph.ConvertDType(k, dtypes.Float32)
	q, k = pos.NewRoPE(c.Theta).EncodeQK(q, k, graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, n), 0), 1)
	q, k = graph.ConvertDType(q, v.DType()), graph.ConvertDType(k, v.DType())
	y := attend2(q, k, v)
	y = graph.Reshape(y, rows, n, c.Width)
	return logical.Replicate(layers.Dense(scope.In("out"), y, false, c.Width))
}

// norm divides by the root of the mean square, in float32.
func (c Config) norm(scope *model.Scope, x *graph.Node) *graph.Node {
	return precision.Full(x, func(x *graph.Node) *graph.Node { return norm.RMSNorm(scope, x).WithEpsilon(c.Epsilon).Done() })
}

func attend2(q, k, v *graph.Node) *graph.Node {
	rows, n, heads, size := q.Shape().Dim(0), q.Shape().Dim(1), q.Shape().Dim(2), q.Shape().Dim(3)
	keyHeads := k.Shape().Dim(2)
	g := q.Graph()
	q = graph.Reshape(graph.MulScalar(q, 1/math.Sqrt(float64(size))), rows, n, keyHeads, heads/keyHeads, size)
	scores := graph.Einsum("bqhgk,bshk->bhgqs", q, k)
	sq := shapes.Make(dtypes.Int32, n, n)
	mask := graph.BroadcastToDims(graph.ExpandLeftToRank(graph.GreaterOrEqual(graph.Iota(g, sq, 0), graph.Iota(g, sq, 1)), 5), scores.Shape().Dimensions...)
	scores = graph.Where(mask, scores, graph.Scalar(g, scores.DType(), -1e9))
	return graph.Reshape(graph.Einsum("bhgqs,bshk->bqhgk", graph.Softmax(scores, -1), v), rows, n, heads, size)
}
