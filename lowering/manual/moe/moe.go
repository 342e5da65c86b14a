package moe

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures [Layer].
type Options struct {
	// Axis is the logical axis that splits the experts and the tokens.
	Axis string
	// TopK is the number of experts of a token. 0 means 2.
	TopK int
	// CapacityFactor is the capacity of the experts relative to an even distribution of the tokens.
	// 0 means 1.25.
	CapacityFactor float64
	// Groups is the number of groups of tokens. 0 means one group for each device of the axis.
	Groups int
}

// Result contains the results of [Layer].
type Result struct {
	// Output is [tokens, width]: for each token, the weighted sum of the results of its experts.
	// The weights are the router's probabilities. If TopK is greater than 1, they are normalized to
	// the sum 1.
	Output *graph.Node
	// BalanceLoss is the load-balancing loss of the Switch Transformer, a float32 scalar. It is 1
	// for an even distribution of the tokens, and at most the number of experts. Add it to the loss
	// with a small factor.
	BalanceLoss *graph.Node
	// Dropped is the fraction of dropped assignments from 0 to 1, a float32 scalar without
	// gradient.
	Dropped *graph.Node
}

// Expert computes the experts of a device. x contains the tokens of these experts and has shape
// [experts, places, width]: each expert has a fixed number of places for tokens. weights are the
// device's shards of the layer's weights, [experts, ...]. The result has shape [experts, places, n]
// for any n. Places without a token contain zeros, and their results are ignored.
type Expert func(x *graph.Node, weights []*graph.Node) *graph.Node

// Layer computes a mixture-of-experts layer. x contains the tokens of the replica, [tokens, width],
// and gate the weights of the router, [width, experts]. Each tensor in weights has the shape
// [experts, ...]. The size of the axis must divide the numbers of experts and groups, and the
// number of groups must divide the number of tokens. The router computes in float32.
//
// Layer panics with an [*errkind.Fault].
func Layer(x, gate *graph.Node, weights []*graph.Node, expert Expert, opts Options) Result {
	n, experts := validate(x, gate, weights, expert, &opts)
	in := []manual.Arg{manual.In(x, opts.Axis), manual.In(gate)}
	for _, w := range weights {
		in = append(in, manual.In(w, opts.Axis))
	}
	out := manual.Region([]string{opts.Axis}, in, []sharding.Spec{sharding.P(opts.Axis), sharding.P(), sharding.P()},
		func(in []*graph.Node) []*graph.Node {
			return computeShard(in[0], in[1], in[2:], expert, experts, opts.Groups/n, opts)
		})
	return Result{Output: out[0], BalanceLoss: out[1], Dropped: out[2]}
}

func computeShard(x, gate *graph.Node, weights []*graph.Node, expert Expert, experts, groups int,
	opts Options) []*graph.Node {
	tokens, width := x.Shape().Dimensions[0]/groups, x.Shape().Dimensions[1]
	room := min(tokens, max(1, int(math.Ceil(opts.CapacityFactor*float64(opts.TopK*tokens)/float64(experts)))))
	x = graph.Reshape(x, groups, tokens, width)
	g := x.Graph()
	logits := graph.Einsum("gtd,de->gte", graph.ConvertDType(x, dtypes.Float32),
		graph.ConvertDType(gate, dtypes.Float32))
	probabilities := graph.Softmax(logits, -1)
	_, chosen := graph.TopK(graph.StopGradient(probabilities), opts.TopK, -1)
	// [groups, top, tokens, experts]
	choices := graph.TransposeAllAxes(graph.OneHot(chosen, experts, dtypes.Float32), 0, 2, 1, 3)
	// [groups, top, tokens]
	weight := graph.ReduceSum(graph.Mul(choices, graph.InsertAxes(probabilities, 1)), -1)
	if opts.TopK > 1 {
		weight = graph.Div(weight, graph.ReduceAndKeep(weight, graph.ReduceSum, 1))
	}
	// The place of a token in an expert is the number of earlier assignments to the same expert.
	inOrder := graph.Reshape(choices, groups, opts.TopK*tokens, experts)
	before := graph.Reshape(graph.Sub(graph.CumSum(inOrder, 1), inOrder), groups, opts.TopK, tokens, experts)
	place := graph.ReduceSum(graph.Mul(before, choices), -1) // [groups, top, tokens]
	fits := graph.ConvertDType(graph.LessThan(place, graph.Const(g, float32(room))), dtypes.Float32)
	// zeros for dropped assignments
	places := graph.OneHot(graph.ConvertDType(place, dtypes.Int32), room, dtypes.Float32)
	// [groups, tokens, experts, room]
	var dispatch, combine *graph.Node
	for k := range opts.TopK {
		of := func(x *graph.Node) *graph.Node { return graph.Squeeze(graph.SliceAxis(x, 1, graph.AxisElem(k)), 1) }
		at := graph.Mul(graph.InsertAxes(of(choices), -1), graph.InsertAxes(of(places), 2))
		weighed := graph.Mul(at, graph.InsertAxes(graph.InsertAxes(of(weight), -1), -1))
		if dispatch == nil {
			dispatch, combine = at, weighed
			continue
		}
		dispatch, combine = graph.Add(dispatch, at), graph.Add(combine, weighed)
	}
	sent := graph.Einsum("gtep,gtd->egpd", graph.ConvertDType(dispatch, x.DType()), x)
	sent = manual.AllToAll(sent, 0, 1, opts.Axis) // the device's experts, all groups
	dims := sent.Shape().Dimensions
	y := expert(graph.Reshape(sent, dims[0], dims[1]*room, width), weights)
	if y == nil || y.Rank() != 3 || y.Shape().Dimensions[0] != dims[0] || y.Shape().Dimensions[1] != dims[1]*room {
		fail(fmt.Sprintf("the experts return %v for tokens of shape %v", y, []int{dims[0], dims[1] * room, width}),
			"return [experts, places, width]")
	}
	y = graph.Reshape(y, dims[0], dims[1], room, y.Shape().Dimensions[2])
	y = manual.AllToAll(y, 1, 0, opts.Axis) // all experts, the device's groups
	y = graph.Einsum("gtep,egpd->gtd", graph.ConvertDType(combine, y.DType()), y)
	y = graph.Reshape(y, groups*tokens, y.Shape().Dimensions[2])

	mean := func(x *graph.Node) *graph.Node { return manual.AllReduce(x, manual.Mean, opts.Axis) }
	// [experts]
	share := mean(graph.MulScalar(graph.ReduceMean(graph.ReduceSum(choices, 1), 0, 1), 1/float64(opts.TopK)))
	likely := mean(graph.ReduceMean(probabilities, 0, 1))
	balance := graph.MulScalar(graph.ReduceAllSum(graph.Mul(share, likely)), float64(experts))
	dropped := graph.OneMinus(mean(graph.ReduceAllMean(fits)))
	return []*graph.Node{y, balance, graph.StopGradient(dropped)}
}

// validate sets the defaults of the options and returns the number of devices of the axis and the
// number of experts.
func validate(x, gate *graph.Node, weights []*graph.Node, expert Expert, opts *Options) (n, experts int) {
	if x == nil || gate == nil || x.Rank() != 2 || gate.Rank() != 2 ||
		gate.Shape().Dimensions[0] != x.Shape().Dimensions[1] {
		fail(fmt.Sprintf("tokens %v and a gate %v", x, gate), "pass [tokens, width] and [width, experts]")
	}
	if expert == nil {
		fail("the function of the experts is nil", "pass the function that computes them")
	}
	n, experts = manual.Size(x.Graph(), opts.Axis), gate.Shape().Dimensions[1]
	tokens := x.Shape().Dimensions[0]
	opts.TopK, opts.CapacityFactor, opts.Groups = cmp.Or(opts.TopK, 2), cmp.Or(opts.CapacityFactor, 1.25),
		cmp.Or(opts.Groups, n)
	switch {
	case experts%n != 0:
		fail(fmt.Sprintf("%d experts on %d devices", experts, n),
			"use a number of experts that the number of devices divides")
	case opts.TopK < 1 || opts.TopK > experts:
		fail(fmt.Sprintf("Options.TopK is %d for %d experts", opts.TopK, experts),
			fmt.Sprintf("use a number from 1 to %d", experts))
	case !(opts.CapacityFactor > 0) || math.IsInf(opts.CapacityFactor, 1):
		fail(fmt.Sprintf("a capacity of %v", opts.CapacityFactor), "use a number above 0, such as 1.25")
	case opts.Groups < 1 || opts.Groups%n != 0:
		fail(fmt.Sprintf("%d groups on %d devices", opts.Groups, n),
			"use a number of groups that the number of devices divides")
	case tokens == 0 || tokens%opts.Groups != 0:
		fail(fmt.Sprintf("%d tokens in %d groups", tokens, opts.Groups),
			"use a number of groups that divides the number of tokens")
	}
	for i, w := range weights {
		if w == nil || w.Rank() == 0 || w.Shape().Dimensions[0] != experts {
			fail(fmt.Sprintf("weights %d are %v for %d experts", i, w, experts),
				"pass weights with the experts along dimension 0")
		}
	}
	return n, experts
}

func fail(reason, hint string) {
	panic(&errkind.Fault{Op: "moe", Reason: reason, Hint: hint, Class: errkind.ValueError})
}
