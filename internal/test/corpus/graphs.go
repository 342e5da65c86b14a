package corpus

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// network contains the sizes of a batch of graphs.
type network struct{ graphs, nodes, edges, features, width, rounds, classes int }

// messages returns a message-passing graph network. Scatters over the nodes of all graphs of a
// replica compute the sum and the maximum of the messages that each node receives.
func messages(c network) Program {
	return Program{
		Inputs: []Input{floats(c.graphs, c.nodes, c.features), ints(c.nodes, c.graphs, c.edges), ints(c.nodes, c.graphs,
			c.edges), ints(c.classes, c.graphs, c.nodes)},
		Splits: func(p int) logical.Rules { return logical.Rules{columns(p, `/message\d/dense/weights`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			local := in[0].Shape().Dim(0)
			all := local * c.nodes
			first := graph.MulScalar(graph.Iota(rc.Graph(), shapes.Make(dtypes.Int32, local, 1), 0), float64(c.nodes))
			flat := func(ends *Node) *Node { return graph.Reshape(graph.Add(ends, first), -1, 1) }
			from, to := flat(in[1]), flat(in[2])
			x := graph.Reshape(in[0], all, c.features)
			ones := graph.Ones(rc.Graph(), shapes.Make(dtypes.Float32, local*c.edges, 1))
			degrees := graph.AddScalar(graph.Scatter(to, ones, shapes.Make(dtypes.Float32, all, 1), false, false), 1)
			for i := range c.rounds {
				sent := layers.Dense(rc.Scope(fmt.Sprintf("message%d", i)), graph.Gather(x, from), true, c.width)
				got := graph.Div(graph.Scatter(to, sent, shapes.Make(dtypes.Float32, all, c.width), false, false), degrees)
				x = activation.Swish(graph.Add(layers.Dense(rc.Scope(fmt.Sprintf("self%d", i)), x, true, c.width), got))
				x = norm.RMSNorm(rc.Scope(fmt.Sprintf("norm%d", i)), x).Done()
			}
			logits := layers.Dense(rc.Scope("classes"), x, true, c.classes)
			return tokenLoss(graph.Reshape(in[3], all), logits)
		},
	}
}

// attending returns a graph attention network. Each node weights its messages with a softmax over
// its edges. A scatter of maxima makes the softmax numerically stable.
func attending(c network) Program {
	return Program{
		Inputs: []Input{floats(c.graphs, c.nodes, c.features), ints(c.nodes, c.graphs, c.edges), ints(c.nodes, c.graphs,
			c.edges), floats(c.graphs, 1)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			g, local := rc.Graph(), in[0].Shape().Dim(0)
			all := local * c.nodes
			first := graph.MulScalar(graph.Iota(g, shapes.Make(dtypes.Int32, local, 1), 0), float64(c.nodes))
			flat := func(ends *Node) *Node { return graph.Reshape(graph.Add(ends, first), -1, 1) }
			from, to := flat(in[1]), flat(in[2])
			x := graph.Reshape(in[0], all, c.features)
			for i := range c.rounds {
				h := layers.Dense(rc.Scope(fmt.Sprintf("values%d", i)), x, false, c.width)
				score := graph.Add(graph.Gather(layers.Dense(rc.Scope(fmt.Sprintf("sends%d", i)), h, false, 1), from),
					graph.Gather(layers.Dense(rc.Scope(fmt.Sprintf("takes%d", i)), h, false, 1), to))
				score = activation.LeakyRelu(score)
				least := graph.FillScalar(g, shapes.Make(dtypes.Float32, all, 1), -1e30)
				most := graph.StopGradient(graph.ScatterMax(least, to, graph.StopGradient(score), false, false))
				weight := graph.Exp(graph.Sub(score, graph.Gather(most, to)))
				sum := graph.Scatter(to, weight, shapes.Make(dtypes.Float32, all, 1), false, false)
				got := graph.Scatter(to, graph.Mul(graph.Gather(h, from), weight), shapes.Make(dtypes.Float32, all, c.width), false,
					false)
				x = activation.Apply(activation.TypeSilu, graph.Div(got, graph.AddScalar(sum, 1e-6)))
			}
			pooled := graph.ReduceMean(graph.Reshape(x, local, c.nodes, c.width), 1)
			return graph.ReduceAllMean(graph.Square(graph.Sub(in[3], layers.Dense(rc.Scope("out"), pooled, true, 1))))
		},
	}
}

// points returns a PointNet over point clouds. It computes the distances between points, selects
// the nearest neighbors of each point, and takes the maximum over the neighbors.
func points(clouds, size, neighbours, width, classes int) Program {
	return Program{
		Inputs: []Input{floats(clouds, size, 3), ints(classes, clouds)},
		Splits: func(p int) logical.Rules { return logical.Rules{columns(p, `/local\d/dense/weights`)} },
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			x := in[0]
			square := graph.ReduceSum(graph.Square(x), -1)
			apart := graph.Sub(graph.Add(graph.InsertAxes(square, -1), graph.InsertAxes(square, 1)),
				graph.MulScalar(graph.Einsum("bnd,bmd->bnm", x, x), 2))
			_, near := graph.TopK(graph.Neg(graph.StopGradient(apart)), neighbours, -1)
			near = graph.Reshape(near, near.Shape().Dim(0), size*neighbours)
			h := x
			for i := range 2 {
				dims := h.Shape().Dim(-1)
				around := graph.Reshape(gatherRows(h, near), -1, size, neighbours, dims)
				here := graph.BroadcastToDims(graph.InsertAxes(h, 2), around.Shape().Dimensions...)
				edge := graph.Concatenate([]*Node{here, graph.Sub(around, here)}, -1)
				h = graph.ReduceMax(activation.Relu(layers.Dense(rc.Scope(fmt.Sprintf("local%d", i)), edge, true, width)), 2)
			}
			return tokenLoss(in[1], layers.Dense(rc.Scope("classes"), graph.ReduceMax(h, 1), true, classes))
		},
	}
}
