package pretrained_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/strategy"
)

type Node = graph.Node

// decoder is a model like Llama or Gemma, whose logits are compared with the logits of other
// programs. In a loop it has the variables of weights.DenseNames, and otherwise projections with a
// separate dimension for the heads.
type decoder struct {
	weights.Config
	loop    bool
	tied    bool         // the head is the embedding
	compute dtypes.DType // dtype of products
}

func (d decoder) names() weights.VariableNames {
	n := weights.DenseNames()
	if !d.loop {
		n.Layer, n.Stacked, n.HeadDims = "/layer{1:02}", false, true
	}
	if d.tied {
		n.Head = ""
	}
	return n
}

func (d decoder) rules() weights.Rules {
	if d.Type == "gemma" {
		return weights.GemmaRules(d.Config, d.names())
	}
	return weights.LlamaRules(d.Config, d.names())
}

// options returns options that shard heads, hidden widths and the vocabulary over p logical
// devices.
func (d decoder) options(replicas, p int, state logical.StateSharding) strategy.Options {
	o := strategy.Options{Replicas: replicas, LogicalDevices: p, Variables: strategytest.Share(state, 2)}
	if p == 1 {
		return o
	}
	split := func(path string, parts ...int) {
		if d.loop && len(path) > 7 && path[:7] == "/layer." {
			parts = append([]int{1}, parts...)
		}
		o.Variables = append(o.Variables, logical.Match(path, logical.SplitInto(parts...)))
	}
	in, out := []int{1, p}, []int{p, 1}
	heads, back := in, out
	if !d.loop {
		heads, back = []int{1, p, 1}, []int{p, 1, 1}
	}
	split("/layer.*/(query|key|value)/dense/weights", heads...)
	split("/layer.*/out/dense/weights", back...)
	split("/layer.*/(gate|up)/dense/weights", in...)
	split("/layer.*/down/dense/weights", out...)
	split("/embedding/embeddings", p, 1)
	if !d.tied {
		split("/head/dense/weights", 1, p)
	}
	return o
}

// variable returns a variable of the model at a path below a scope.
func (d decoder) variable(rc *strategy.ReplicaContext, scope *model.Scope, path string, dims ...int) *Node {
	v := scope
	start := 0
	for i := range path {
		if path[i] == '/' {
			v, start = v.In("%s", path[start:i]), i+1
		}
	}
	return d.cast(v.VariableWithShape(path[start:], shapes.Make(dtypes.Float32, dims...)).NodeValue(rc.Graph()))
}

func (d decoder) cast(x *Node) *Node {
	if x.DType() == d.compute {
		return x
	}
	return graph.ConvertDType(x, d.compute)
}

// norm divides by the root mean square, in float32.
func (d decoder) norm(x, scale *Node) *Node {
	x = graph.ConvertDType(x, dtypes.Float32)
	mean := graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1)
	x = graph.Div(x, graph.Sqrt(graph.AddScalar(mean, d.Epsilon)))
	return d.cast(graph.Mul(x, graph.ExpandLeftToRank(graph.ConvertDType(scale, dtypes.Float32), 3)))
}

// rotated rotates elements i and i + size/2 of each head.
func (d decoder) rotated(x *Node) *Node {
	g, half := x.Graph(), d.HeadSize/2
	table := shapes.Make(dtypes.Float32, 1, x.Shape().Dim(1), 1, half)
	speed := graph.Exp(graph.MulScalar(graph.Iota(g, table, 3), -math.Log(d.RotaryBase)/float64(half)))
	angle := graph.Mul(graph.Iota(g, table, 1), speed)
	cos, sin := graph.Cos(angle), graph.Sin(angle)
	x = graph.ConvertDType(x, dtypes.Float32)
	a := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, half))
	b := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(half))
	return d.cast(graph.Concatenate([]*Node{graph.Sub(graph.Mul(a, cos), graph.Mul(b, sin)), graph.Add(graph.Mul(b, cos),
		graph.Mul(a, sin))}, -1))
}

func (d decoder) layer(rc *strategy.ReplicaContext, scope *model.Scope, x *Node) *Node {
	n := d.names()
	rows, places := x.Shape().Dim(0), x.Shape().Dim(1)
	h := d.norm(x, d.variable(rc, scope, n.Norm1, d.Width))
	project := func(path string, heads int) *Node {
		if d.loop {
			return graph.Reshape(graph.Einsum("bsd,dh->bsh", h, d.variable(rc, scope, path, d.Width, heads*d.HeadSize)), rows,
				places, heads, d.HeadSize)
		}
		return graph.Einsum("bsd,dhk->bshk", h, d.variable(rc, scope, path, d.Width, heads, d.HeadSize))
	}
	q, k, v := d.rotated(project(n.Query, d.Heads)), d.rotated(project(n.Key, d.KeyHeads)), project(n.Value, d.KeyHeads)
	q = graph.Reshape(q, rows, places, d.KeyHeads, d.Heads/d.KeyHeads, d.HeadSize)
	scores := graph.DivScalar(graph.ConvertDType(graph.Einsum("bqhgk,bshk->bhgqs", q, k), dtypes.Float32),
		math.Sqrt(float64(d.HeadSize)))
	square := shapes.Make(dtypes.Int32, places, places)
	seen := graph.LessOrEqual(graph.Iota(x.Graph(), square, 1), graph.Iota(x.Graph(), square, 0))
	seen = graph.BroadcastToDims(graph.ExpandLeftToRank(seen, 5), scores.Shape().Dimensions...)
	scores = graph.Softmax(graph.Where(seen, scores, graph.Scalar(x.Graph(), dtypes.Float32, -1e9)), -1)
	out := graph.Einsum("bhgqs,bshk->bqhgk", d.cast(scores), v)
	if d.loop {
		out = graph.Einsum("bsh,hd->bsd", graph.Reshape(out, rows, places, d.Heads*d.HeadSize),
			d.variable(rc, scope, n.Output, d.Heads*d.HeadSize, d.Width))
	} else {
		out = graph.Einsum("bshk,hkd->bsd", graph.Reshape(out, rows, places, d.Heads, d.HeadSize),
			d.variable(rc, scope, n.Output, d.Heads, d.HeadSize, d.Width))
	}
	x = graph.Add(x, out)
	h = d.norm(x, d.variable(rc, scope, n.Norm2, d.Width))
	up := func(path string) *Node {
		return graph.Einsum("bsd,df->bsf", h, d.variable(rc, scope, path, d.Width, d.Hidden))
	}
	gate := up(n.Gate)
	if d.Type == "gemma" {
		gate = activation.GeluApproximate(gate)
	} else {
		gate = graph.Mul(gate, graph.Sigmoid(gate))
	}
	return graph.Add(x, graph.Einsum("bsf,fd->bsd", graph.Mul(gate, up(n.Up)), d.variable(rc, scope, n.Down, d.Hidden,
		d.Width)))
}

// logits returns the logits of a replica's tokens, in float32.
func (d decoder) logits(rc *strategy.ReplicaContext, in []*Node) []*Node {
	n, root := d.names(), rc.Scope()
	embedding := d.variable(rc, root, n.Embedding[1:], d.Vocabulary, d.Width)
	x := graph.Gather(embedding, graph.InsertAxes(in[0], -1))
	if d.Type == "gemma" {
		x = graph.MulScalar(x, math.Sqrt(float64(d.Width)))
	}
	if d.loop {
		x = loop.Layers(rc.Scope("layers"), d.Layers, x, func(scope *model.Scope, x *Node) *Node {
			return d.layer(rc, scope,
				x)
		}, loop.Options{})
	} else {
		for i := range d.Layers {
			x = d.layer(rc, rc.Scope(fmt.Sprintf("layer%02d", i)), x)
		}
	}
	x = d.norm(x, d.variable(rc, root, n.Norm[1:], d.Width))
	if d.tied {
		x = graph.Einsum("bsd,vd->bsv", x, embedding)
	} else {
		x = graph.Einsum("bsd,dv->bsv", x, d.variable(rc, root, n.Head[1:], d.Width, d.Vocabulary))
	}
	return []*Node{graph.ConvertDType(x, dtypes.Float32)}
}

// function returns the model over a store.
func (d decoder) function(s *strategy.TPUStrategy, store *model.Store) *strategy.Function {
	if d.compute == dtypes.InvalidDType {
		d.compute = dtypes.Float32
	}
	return s.Function(d.logits, strategy.FunctionOptions{Name: "logits", Store: store, SplitBatch: true})
}

// expected contains the tokens and the logits of the official package.
type expected struct {
	Tokens [][]int32     `json:"tokens"`
	Logits [][][]float32 `json:"logits"`
}

func read(t testing.TB, dir string) (c weights.Config, e expected) {
	t.Helper()
	c, err := weights.ReadConfig(dir)
	require.NoError(t, err)
	text, err := os.ReadFile(dir + "/expected.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &e))
	return c, e
}

// run computes the logits of all rows.
func run(t testing.TB, s *strategy.TPUStrategy, f *strategy.Function, tokens [][]int32) []float64 {
	t.Helper()
	results, err := f.Run(context.Background(), tokens)
	require.NoError(t, err)
	defer results[0].Close()
	var all []float64
	for r := range s.NumReplicasInSync() {
		x, err := results[0].Local(context.Background(), r)
		require.NoError(t, err)
		all = append(all, strategytest.Numbers(t, x)...)
	}
	return all
}

// far returns the largest difference of two lists relative to the largest number of the first.
func far(want [][][]float32, got []float64) float64 {
	worst, largest, i := 0.0, 0.0, 0
	for _, row := range want {
		for _, place := range row {
			for _, x := range place {
				worst, largest = max(worst, math.Abs(float64(x)-got[i])), max(largest, math.Abs(float64(x)))
				i++
			}
		}
	}
	if i != len(got) {
		return math.Inf(1)
	}
	return worst / largest
}

// batch returns a batch as a tensor.
func batch(tokens [][]int32) shapes.Shape { return tensors.FromValue(tokens).Shape() }

type lazyValue struct{ weights.Variable }

func (p lazyValue) shape() shapes.Shape { return shapes.Make(p.DType, p.Shape...) }
