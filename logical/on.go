package logical

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/recomputed"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// On runs f on logical device k alone: the other logical devices of the replica skip the ops of f,
// forward and backward, and receive the result. f gets x and returns one node of any shape.
//
// f may use variables and constants from outside. Pass any other node from outside as an argument
// (see [OnMany]). Regions do not nest. They hold neither annotations nor collectives, because the
// replica's other devices would not run them. A region has a gradient but no second one:
// differentiating it again is an error. On panics with an [*Error].
//
// Device k sends the result to the others, bit for bit, which costs the result's bytes on the
// interconnect. So do the gradients that leave the region in the backward pass. Values that the
// backward pass needs from the forward pass stay on device k, and have their memory on the others
// too.
//
// In the body of a loop over layers (package loop) and of a block (package remat) On may stand too.
// What the backward pass needs is there kept or computed again as the policy of the loop or the
// block says: a region is computed again as a whole, since a policy does not see the products and
// the names in it. What is wrong with the region's values is there an [*errkind.Fault].
func On(k int, x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	if f == nil {
		return OnMany(k, []*graph.Node{x}, nil)[0]
	}
	return OnMany(k, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	})[0]
}

// OnMany runs a region on one logical device as [On] does, with several arguments and results. It
// needs at least one argument and one result.
func OnMany(k int, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	if len(inputs) == 0 {
		panic(&Error{Op: "on", Dim: -1, Reason: "no arguments", Hint: "pass the nodes that the region reads"})
	}
	target := targetOf("on", inputs[0])
	fail := func(reason, hint string) {
		panic(&Error{Op: "on", Dim: -1, Devices: target.LogicalDevices(), Reason: reason, Hint: hint})
	}
	if err := AssignTo(k).ValidateOn(target.LogicalMesh(), "", nil); err != nil {
		fail(fmt.Sprintf("logical device %d is not one of the replica's %d", k, target.LogicalDevices()),
			fmt.Sprintf("use a number from 0 to %d", target.LogicalDevices()-1))
	}
	g := inputs[0].Graph()
	for i, input := range inputs {
		if input == nil || input.Graph() != g {
			fail(fmt.Sprintf("argument %d is not a node of this graph", i), "pass nodes of the step")
		}
	}
	if f == nil {
		fail("no function", "pass the function that builds the region")
	}
	if !g.IsMainFunc() {
		fail("inside a closure (a loop body or a branch)", "move the region out of the closure")
	}
	if len(target.Open()) > 0 {
		return onWithin(target, k, inputs, f)
	}
	inputs, again := recomputed.Stop(inputs)
	r := &deviceRegion{target: target, device: k}
	first := graph.NodeId(len(g.Nodes()))
	enters := make([]*graph.Node, len(inputs))
	outputs := r.run(func() []*graph.Node {
		for i, input := range inputs {
			enters[i] = r.enter(input)
		}
		return f(slices.Clone(enters))
	})
	if len(outputs) == 0 {
		fail("the region returns nothing", "return at least one node")
	}
	for i, y := range outputs {
		if y == nil || y.Graph() != g {
			fail(fmt.Sprintf("result %d is not a node of this graph", i), "return nodes made from the arguments")
		}
	}
	r.collect(g.Nodes()[first:], inputs, enters, outputs)
	results := make([]*graph.Node, len(outputs))
	for i, y := range outputs {
		results[i] = r.result(y)
		if again {
			results[i] = results[i].Checkpoint()
		}
	}
	return results
}

// onWithin traces a region inside of one that is written apart, such as a loop's body.
func onWithin(target region.Target, k int, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	arguments := make([]region.Argument, len(inputs))
	for i, x := range inputs {
		arguments[i] = region.Argument{Node: x, Crossing: region.Same{}}
	}
	return region.Trace(target, region.On{Device: k}, arguments, func(in []*graph.Node) (results []region.Result) {
		for _, y := range f(in) {
			results = append(results, region.Result{Node: y, Crossing: region.Same{}})
		}
		return results
	})
}

// deviceRegion is one On call: what it reads, so that its gradient can be cut there.
type deviceRegion struct {
	target Target
	device int
	// sources are the nodes outside of the region that gradients flow to, and leaves the nodes of
	// the region that stand for them.
	sources, leaves []*graph.Node
	// backward is set while the region's gradient is traced.
	backward bool
}

// run returns what body traces inside the region. A panic of body ends the region too: the step may
// recover from it and go on.
func (r *deviceRegion) run(body func() []*graph.Node) []*graph.Node {
	if err := r.target.BeginRegion(r.device); err != nil {
		panic(err)
	}
	defer r.target.EndRegion()
	return body()
}

// enter returns the node that stands inside of the region for one from outside. The gradient of the
// region is taken from its results to these nodes and ends there; result carries it on. Another
// gradient that arrives here would be lost.
func (r *deviceRegion) enter(x *graph.Node) *graph.Node {
	return graph.IdentityWithCustomGradient(x, func(_, _ *graph.Node) *graph.Node {
		if !r.backward {
			panic(&Error{Op: "on", Shape: x.Shape().Dimensions, Dim: -1, Devices: r.target.LogicalDevices(),
				Reason: "a gradient arrives inside the region, past its results: a gradient of a gradient, or a node of the region that is used outside",
				Hint:   "take second derivatives of ops outside of regions, and return what is used outside"})
		}
		return nil
	})
}

// collect finds the region's sources: its arguments and the variables that its ops read or that it
// returns. Another node from outside would lose its gradient at the region's border, so it is
// refused unless it has no inputs (a constant).
func (r *deviceRegion) collect(nodes, inputs, enters, outputs []*graph.Node) {
	add := func(source, leaf *graph.Node) {
		if leaf.DType().IsFloat() && !slices.Contains(r.leaves, leaf) {
			r.sources, r.leaves = append(r.sources, source), append(r.leaves, leaf)
		}
	}
	for i, enter := range enters {
		add(inputs[i], enter)
	}
	first := nodes[0].Id()
	use := func(verb string, node *graph.Node) {
		switch {
		case region.IsVariable(node, first):
			// Those of closures are no variables.
			if node.Function() == enters[0].Function() {
				add(node, node)
			}
		case node.Id() < first && len(node.Inputs()) > 0:
			panic(&Error{Op: "on", Shape: node.Shape().Dimensions, Dim: -1, Devices: r.target.LogicalDevices(),
				Reason: fmt.Sprintf("the region %s node %q from outside", verb, node.String()),
				Hint:   "pass it to OnMany as an argument"})
		}
	}
	for _, node := range nodes {
		if slices.Contains(enters, node) {
			continue
		}
		for _, input := range node.Inputs() {
			use("reads", input)
		}
	}
	for _, output := range outputs {
		use("returns", output)
	}
}

// result returns the node that stands outside for the region's y. GoMLX gives a node one input to
// carry gradients to, and the region has several sources; so y is loaded in the place of a sum over
// the sources, each term of which is zeros with the gradient of its source. Nothing reads the sum.
func (r *deviceRegion) result(y *graph.Node) *graph.Node {
	slot := &region.Slot{}
	r.target.EmitBorder(y, region.Save{Slot: slot}, nil)
	if len(r.sources) == 0 || !y.DType().IsFloat() {
		return r.target.EmitBorder(y, region.Load{Slot: slot}, nil)
	}
	// All sources see the same adjoint of y: one backward region serves them.
	var adjoint *graph.Node
	var gradients []*graph.Node
	backward := func(v *graph.Node) []*graph.Node {
		if v == adjoint {
			return gradients
		}
		gradients = r.run(func() []*graph.Node {
			r.backward = true
			defer func() { r.backward = false }()
			// The adjoint depends on the step's variables too, but not through here.
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(y, r.enter(v))), r.leaves...)
		})
		adjoint = v
		return gradients
	}
	var sum *graph.Node
	for i, source := range r.sources {
		term := r.target.EmitBorder(source, region.Zeros{Slot: slot}, func(v *graph.Node) *graph.Node { return backward(v)[i] })
		if sum == nil {
			sum = term
		} else {
			sum = graph.Add(sum, term)
		}
	}
	return r.target.EmitBorder(sum, region.Load{Slot: slot}, func(v *graph.Node) *graph.Node { return v })
}
