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

	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Rules returns the rules that shard the variables over the logical devices: attention by heads,
// the dense layers by hidden features, and the embedding and the output layer by the vocabulary.
func Rules() logical.Rules {
	return logical.Rules{
		logical.Match(`embedding/embeddings`, logical.SplitOverAxes("logical", "")),
		logical.Match(`layers/(query|key|value|gate|up)/dense/weights`, logical.SplitOverAxes("", "", "logical")),
		logical.Match(`layers/(out|down)/dense/weights`, logical.SplitOverAxes("", "logical", "")),
		logical.Match(`head/dense/weights`, logical.SplitOverAxes("", "logical")),
	}
}

// Loss returns the loss of a replica: the mean cross-entropy, in nats, of the predicted tokens. in[0]
// are windows of tokens, int32 [rows, Sequence+1], in which each token is predicted from the previous
// tokens. in[1] are optional weights, [rows, Sequence]. The metric "nats" has the loss of each token.
func (c Config) Loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	n := in[0].Shape().Dim(1) - 1
	logits := c.Logits(rc, graph.SliceAxis(in[0], 1, graph.AxisRange(0, n)), nil)
	next := graph.OneHot(graph.SliceAxis(in[0], 1, graph.AxisRange(1)), c.Vocabulary, logits.DType())
	losses := graph.Neg(graph.ReduceSum(graph.Mul(next, graph.LogSoftmax(logits)), -1))
	train.Report(rc, "nats", losses, append(in[1:], nil)[0])
	return graph.ReduceAllMean(losses)
}

// Logits returns logits, float32 [rows, n, Vocabulary], for tokens, int32 [rows, n]. cache is nil
// in training.
func (c Config) Logits(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
	scope := rc.Scope().WithInitializer(initializer.RandomNormalFn(rc.Scope(), 0.02))
	c, positions := c.forCache(cache), cache.Positions(tokens)
	x := layers.Embedding(scope.In("embedding"), graph.InsertAxes(tokens, -1), dtypes.Float32, c.Vocabulary, c.Width)
	x = c.shardActivations(precision.Compute(x))
	x = loop.Layers(scope.In("layers"), c.Layers, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
		x = graph.Add(x, c.attentionLayer(scope, c.rmsNorm(scope.In("norm1"), x), positions, cache))
		return graph.Add(x, c.feedForward(scope, c.rmsNorm(scope.In("norm2"), x)))
	}, loop.Options{Keep: c.Remat})
	logits := layers.Dense(scope.In("head"), c.rmsNorm(scope.In("norm"), x), false, c.Vocabulary)
	return precision.Output(logical.SplitOver(logits, "", "", "logical"))
}

// attentionLayer computes causal attention with rotary positions. The angles are float32, because
// bfloat16 is not precise enough for positions.
func (c Config) attentionLayer(scope *model.Scope, x, positions *graph.Node, cache *generate.Cache) *graph.Node {
	project := func(name string, heads int) *graph.Node {
		y := layers.Dense(scope.In("%s", name), x, false, heads, c.FeaturesPerHead())
		return logical.SplitOver(y, "", "", "logical", "")
	}
	q, k, v := project("query", c.Heads), project("key", c.KeyHeads), project("value", c.KeyHeads)
	q, k = graph.ConvertDType(q, dtypes.Float32), graph.ConvertDType(k, dtypes.Float32)
	half := c.FeaturesPerHead() / 2
	speeds := graph.Exp(graph.MulScalar(graph.Iota(x.Graph(), shapes.Make(dtypes.Float32, 1, 1, half), 2),
		-math.Log(c.RotaryBase)/float64(half)))
	angles := graph.Mul(graph.ConvertDType(graph.InsertAxes(positions, -1), dtypes.Float32), speeds)
	rotary := pos.NewRoPEWithCosSin(graph.Cos(angles), graph.Sin(angles))
	q, k = graph.ConvertDType(rotary.Encode(q, 1), x.DType()), graph.ConvertDType(rotary.Encode(k, 1), x.DType())
	y := c.attend(cache, q, k, v)
	y = graph.Reshape(y, x.Shape().Dim(0), x.Shape().Dim(1), c.Heads*c.FeaturesPerHead())
	return c.outputProjection(scope.In("out"), y)
}

// feedForward computes a SwiGLU feed-forward layer.
func (c Config) feedForward(scope *model.Scope, x *graph.Node) *graph.Node {
	h := activation.Swish(layers.Dense(scope.In("gate"), x, false, c.Hidden))
	h = graph.Mul(h, layers.Dense(scope.In("up"), x, false, c.Hidden))
	return c.outputProjection(scope.In("down"), c.shardFeatures(h))
}

// rmsNorm computes RMS normalization in float32.
func (c Config) rmsNorm(scope *model.Scope, x *graph.Node) *graph.Node {
	rms := func(x *graph.Node) *graph.Node { return norm.RMSNorm(scope, x).WithEpsilon(c.Epsilon).Done() }
	return c.gatherTokens(precision.FullPrecision(x, rms))
}
