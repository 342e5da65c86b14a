package logical

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// On runs f on logical device k alone: the other logical devices of the replica
// skip its ops, forward and backward, and receive the result. f gets x and
// returns one node of any shape.
//
// f may use variables and constants from outside. Any other node from outside
// must come in as an argument, see [OnMany]. Regions do not nest, and hold neither
// annotations nor collectives: a replica's other devices do not run them.
//
// The result is sent from device k to the others, which costs its bytes on the
// interconnect; so do the gradients that leave the region in the backward pass.
// Values that the backward pass needs from the forward pass stay on device k.
func On(k int, x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	return OnMany(k, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	})[0]
}

// OnMany is [On] for several arguments and results. There is at least one
// argument.
func OnMany(k int, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	if len(inputs) == 0 {
		panic(&Error{Op: "on", Dim: -1, Reason: "no arguments", Hint: "pass the nodes that the region reads"})
	}
	target := targetOf("on", inputs[0])
	fail := func(reason, hint string) {
		panic(&Error{Op: "on", Dim: -1, Devices: target.LogicalDevices(), Reason: reason, Hint: hint})
	}
	if err := AssignTo(k).Validate("", nil, target.LogicalDevices()); err != nil {
		fail(fmt.Sprintf("logical device %d is not one of the replica's %d", k, target.LogicalDevices()),
			fmt.Sprintf("use a number from 0 to %d", target.LogicalDevices()-1))
	}
	g := inputs[0].Graph()
	if !g.IsMainFunc() {
		fail("inside a closure (a loop body or a branch)", "move the region out of the closure")
	}
	begin(target, k)
	first := graph.NodeId(len(g.Nodes()))
	enters := make([]*graph.Node, len(inputs))
	for i, input := range inputs {
		// The gradient of the region is taken from its results to these nodes,
		// and must not run on through them: see result.
		enters[i] = graph.IdentityWithCustomGradient(input, func(_, _ *graph.Node) *graph.Node { return nil })
	}
	outputs := f(slices.Clone(enters))
	target.EndRegion()
	if len(outputs) == 0 {
		fail("the region returns nothing", "return at least one node")
	}
	r := &region{target: target, device: k}
	r.collect(g.Nodes()[first:], inputs, enters)
	results := make([]*graph.Node, len(outputs))
	for i, y := range outputs {
		if y == nil || y.Graph() != g {
			fail(fmt.Sprintf("result %d is not a node of this graph", i), "return nodes made from the arguments")
		}
		results[i] = r.result(y)
	}
	return results
}

// region is one On call: what it reads, so that its gradient can be cut there.
type region struct {
	target Target
	device int
	// sources are the nodes outside of the region that gradients flow to, and
	// leaves the nodes of the region that stand for them.
	sources, leaves []*graph.Node
}

// collect finds the region's sources: its arguments and the variables that its
// ops read. Another node read from outside would lose its gradient at the
// region's border, so it is refused unless it has no inputs (a constant).
func (r *region) collect(nodes, inputs, enters []*graph.Node) {
	add := func(source, leaf *graph.Node) {
		if leaf.DType().IsFloat() && !slices.Contains(r.leaves, leaf) {
			r.sources, r.leaves = append(r.sources, source), append(r.leaves, leaf)
		}
	}
	for i, enter := range enters {
		add(inputs[i], enter)
	}
	first := nodes[0].Id()
	for _, node := range nodes {
		if slices.Contains(enters, node) {
			continue
		}
		for _, input := range node.Inputs() {
			switch {
			case input.Type() == graph.NodeTypeParameter:
				add(input, input)
			case input.Id() < first && len(input.Inputs()) > 0:
				panic(&Error{Op: "on", Shape: input.Shape().Dimensions, Dim: -1, Devices: r.target.LogicalDevices(),
					Reason: fmt.Sprintf("the region reads node %q from outside", input.String()),
					Hint:   "pass it to OnMany as an argument"})
			}
		}
	}
}

// result returns the node that stands outside for the region's y. GoMLX gives a
// node one input to carry gradients to, and the region has several sources; so
// the result is a sum over the sources in which the first term is y and the
// others are zeros, each with the gradient of its source. The compiler drops the
// zeros.
func (r *region) result(y *graph.Node) *graph.Node {
	slot := &Slot{}
	r.target.Next(Op{Kind: OpSave, Slot: slot})
	graph.Identity(y)
	if len(r.sources) == 0 || !y.DType().IsFloat() {
		r.target.Next(Op{Kind: OpLoad, Slot: slot})
		return graph.StopGradient(y)
	}
	// All sources see the same adjoint of y: one backward region serves them.
	var adjoint *graph.Node
	var gradients []*graph.Node
	backward := func(v *graph.Node) []*graph.Node {
		if v == adjoint {
			return gradients
		}
		begin(r.target, r.device)
		defer r.target.EndRegion()
		adjoint = v
		// The adjoint depends on the step's variables too, but not through here.
		gradients = graph.Gradient(graph.ReduceAllSum(graph.Mul(y, graph.StopGradient(v))), r.leaves...)
		return gradients
	}
	var sum *graph.Node
	for i, source := range r.sources {
		kind := OpZeros
		if i == 0 {
			kind = OpLoad
		}
		r.target.Next(Op{Kind: kind, Slot: slot})
		term := graph.IdentityWithCustomGradient(source, func(_, v *graph.Node) *graph.Node {
			return backward(v)[i]
		})
		if sum == nil {
			sum = term
		} else {
			sum = graph.Add(sum, term)
		}
	}
	return sum
}

func begin(target Target, device int) {
	if err := target.BeginRegion(device); err != nil {
		panic(err)
	}
}
