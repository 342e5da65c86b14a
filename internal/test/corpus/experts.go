package corpus

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// mixture contains the sizes of a mixture of experts that sends each token to k experts.
type mixture struct {
	rows, length, vocabulary, width, hidden, experts, k int
	dtype                                               dtypes.DType
}

// expert returns the weights of all experts. The first dimension is the expert, and it is sharded
// over the logical devices.
func (c mixture) expert(rc *strategy.ReplicaContext, name string, dims ...int) *Node {
	return rc.Scope("experts").VariableWithShape(name, shapes.Make(c.dtype, dims...)).NodeValue(rc.Graph())
}

func expertRules(p int) logical.Rules {
	return logical.Rules{logical.Match(`/experts/`, logical.SplitInto(p, 1, 1))}
}

func (c mixture) program(experts func(rc *strategy.ReplicaContext, x *Node) *Node) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Splits: expertRules,
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := layers.Embedding(rc.Scope("tokens"), in[0], c.dtype, c.vocabulary, c.width)
			flat := graph.Reshape(x, -1, c.width)
			flat = graph.Add(flat, experts(rc, flat))
			x = graph.Reshape(flat, x.Shape().Dimensions...)
			return tokenLoss(in[1], layers.Dense(rc.Scope("vocabulary"), x, false, c.vocabulary))
		},
	}
}

// mixed returns a model that computes all experts for each token and masks out all but the k best.
func mixed(c mixture) Program {
	return c.program(func(rc *strategy.ReplicaContext, x *Node) *Node {
		gates := graph.Softmax(layers.Dense(rc.Scope("router"), x, false, c.experts))
		gates = graph.Where(graph.TopKMask(gates, c.k, -1), gates, graph.ZerosLike(gates))
		h := activation.Swish(graph.Einsum("td,edh->eth", x, c.expert(rc, "up", c.experts, c.width, c.hidden)))
		y := graph.Einsum("eth,ehd->etd", h, c.expert(rc, "down", c.experts, c.hidden, c.width))
		return graph.ReduceSum(graph.Mul(y, graph.InsertAxes(graph.Transpose(gates, 0, 1), -1)), 0)
	})
}

// dispatched returns a model that sends each token to its k experts with a scatter and a gather. A
// running sum assigns the positions in each expert's buffer. An expert ignores tokens beyond its
// capacity room.
func dispatched(c mixture, room int) Program {
	return c.program(func(rc *strategy.ReplicaContext, x *Node) *Node {
		g, tokens := rc.Graph(), x.Shape().Dim(0)
		gates := graph.Softmax(layers.Dense(rc.Scope("router"), x, false, c.experts))
		_, experts := graph.TopK(graph.StopGradient(gates), c.k, -1) // GoMLX cannot differentiate a sort
		experts = graph.Reshape(experts, tokens*c.k)
		chosen := graph.OneHot(experts, c.experts, dtypes.Int32)
		places := graph.ReduceSum(graph.Mul(graph.AddScalar(graph.CumSum(chosen, 0), -1), chosen), 1)
		fits := graph.LessThan(places, graph.Scalar(g, dtypes.Int32, room))
		slot := graph.Add(graph.MulScalar(graph.ConvertDType(experts, dtypes.Int32), float64(room)),
			graph.Min(places, graph.Scalar(g, dtypes.Int32, room-1)))
		slot = graph.InsertAxes(slot, -1)
		sent := graph.Reshape(graph.BroadcastToDims(graph.InsertAxes(x, 1), tokens, c.k, c.width), tokens*c.k, c.width)
		sent = graph.Mul(sent, graph.InsertAxes(graph.ConvertDType(fits, c.dtype), -1))
		boxes := graph.Scatter(slot, sent, shapes.Make(c.dtype, c.experts*room, c.width), false, false)
		boxes = graph.Reshape(boxes, c.experts, room, c.width)
		h := activation.Swish(graph.Einsum("ecd,edh->ech", boxes, c.expert(rc, "up", c.experts, c.width, c.hidden)))
		y := graph.Einsum("ech,ehd->ecd", h, c.expert(rc, "down", c.experts, c.hidden, c.width))
		got := graph.Gather(graph.Reshape(y, c.experts*room, c.width), slot)
		asked := graph.BroadcastToDims(graph.InsertAxes(gates, 1), tokens, c.k, c.experts)
		asked = graph.ReduceSum(graph.Mul(graph.Reshape(asked, tokens*c.k, c.experts), graph.ConvertDType(chosen, c.dtype)),
			-1)
		weights := graph.Mul(asked, graph.ConvertDType(fits, c.dtype))
		got = graph.Mul(got, graph.InsertAxes(weights, -1))
		return graph.ReduceSum(graph.Reshape(got, tokens, c.k, c.width), 1)
	})
}
