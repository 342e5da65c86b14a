package logical

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/internal/rematerialization"
)

// OnDevice runs f only on the given logical device. The other logical devices of the replica skip
// the ops of f in the forward and backward pass, and receive the result. f receives x and returns
// one node of any shape.
//
// f may use variables and constants of the step. Pass any other outside node as an argument (see
// [OnDeviceMany]). Regions cannot be nested, and cannot contain annotations or collectives, because
// the other devices do not run the region. The gradient of a region cannot be differentiated again.
// OnDevice panics with an [*Error] if one of these conditions is violated.
//
// The device sends the result to the other devices, at the cost of its bytes on the interconnect.
// In the backward pass it also sends the gradients of the arguments and variables. Values that the
// backward pass needs stay on the device, but use the same amount of memory on the other devices.
//
// OnDevice can also be used in the body of a loop over layers (package loop) and in a block
// (package remat). There the policy of the loop or block decides whether the values for the
// backward pass are kept or recomputed. A region is recomputed as a unit, because a policy cannot
// select values inside a region. Errors in the arguments and results of such a region are an
// [*errkind.Fault] instead of an [*Error].
func OnDevice(device int, x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	if f == nil {
		return OnDeviceMany(device, []*graph.Node{x}, nil)[0]
	}
	return OnDeviceMany(device, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	})[0]
}

// OnDeviceMany is like [OnDevice], but with several arguments and results. At least one argument
// and one result are required.
func OnDeviceMany(device int, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	if len(inputs) == 0 {
		panic(&Error{Op: "on", Dim: -1, Reason: "there are no arguments", Hint: "pass the nodes that the region reads"})
	}
	target := requireTarget("on", inputs[0])
	fail := func(reason, hint string) {
		panic(&Error{Op: "on", Dim: -1, Devices: target.LogicalDevices(), Reason: reason, Hint: hint})
	}
	if err := AssignTo(device).ValidateOn(target.LogicalMesh(), "", nil); err != nil {
		fail(fmt.Sprintf("there is no logical device %d in a replica of %d devices", device, target.LogicalDevices()),
			fmt.Sprintf("use a number from 0 to %d", target.LogicalDevices()-1))
	}
	g := inputs[0].Graph()
	for i, input := range inputs {
		if input == nil || input.Graph() != g {
			fail(fmt.Sprintf("argument %d is not a node of this graph", i), "pass nodes of the step")
		}
	}
	if f == nil {
		fail("the function is nil", "pass the function that builds the region")
	}
	if !g.IsMainFunc() {
		fail("called inside a closure (a loop body or a branch)", "move the region out of the closure")
	}
	if len(target.OpenPasses()) > 0 {
		return traceNested(target, device, inputs, f)
	}
	inputs, isRecomputed := rematerialization.StopCheckpoints(inputs)
	r := &deviceRegion{target: target, device: device}
	first := graph.NodeId(len(g.Nodes()))
	enters := make([]*graph.Node, len(inputs))
	outputs := r.trace(func() []*graph.Node {
		for i, input := range inputs {
			enters[i] = r.enterNode(input)
		}
		return f(slices.Clone(enters))
	})
	if len(outputs) == 0 {
		fail("the region returns nothing", "return at least one node")
	}
	for i, y := range outputs {
		if y == nil || y.Graph() != g {
			fail(fmt.Sprintf("result %d is not a node of this graph", i), "return nodes computed from the arguments")
		}
	}
	r.collectSources(g.Nodes()[first:], inputs, enters, outputs)
	results := make([]*graph.Node, len(outputs))
	for i, y := range outputs {
		results[i] = r.exportResult(y)
		if isRecomputed {
			results[i] = results[i].Checkpoint()
		}
	}
	return results
}

// traceNested traces an OnDevice region inside a loop body or a rematerialization block.
func traceNested(target region.Target, device int, inputs []*graph.Node,
	f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	arguments := make([]region.Argument, len(inputs))
	for i, x := range inputs {
		arguments[i] = region.Argument{Node: x, Mapping: region.Identity{}}
	}
	return region.Trace(target, region.On{Device: device}, arguments, func(in []*graph.Node) (results []region.Result) {
		for _, y := range f(in) {
			results = append(results, region.Result{Node: y, Mapping: region.Identity{}})
		}
		return results
	})
}

// deviceRegion is the state of one OnDevice call. The gradient of the region is computed separately
// from the gradient of the step, so the region records which nodes need gradients.
type deviceRegion struct {
	target Target
	device int
	// sources are the nodes outside of the region that receive gradients. regionLeaves are the
	// corresponding nodes inside the region.
	sources, regionLeaves []*graph.Node
	// backward is true while the gradient of the region is traced.
	backward bool
}

// trace calls body, whose ops run only on the device of the region, and returns its results. It
// ends the region even if body panics, because the step may recover.
func (r *deviceRegion) trace(body func() []*graph.Node) []*graph.Node {
	if err := r.target.BeginRegion(r.device); err != nil {
		panic(err)
	}
	defer r.target.EndRegion()
	return body()
}

// enterNode returns a node inside the region with the value of x, a node outside. exportResult
// computes the gradient of the region separately, so any other gradient that reaches this node is
// an error.
func (r *deviceRegion) enterNode(x *graph.Node) *graph.Node {
	return graph.IdentityWithCustomGradient(x, func(_, _ *graph.Node) *graph.Node {
		if !r.backward {
			panic(&Error{Op: "on", Shape: x.Shape().Dimensions, Dim: -1, Devices: r.target.LogicalDevices(),
				Reason: "a gradient enters the region without passing through its results; " +
					"this is a second derivative, or a node of the region is used outside",
				Hint: "take second derivatives of ops outside of regions, and return every node that is used outside"})
		}
		return nil
	})
}

// collectSources records the region's arguments, and the variables that its ops read or return, as
// sources of gradients. It panics if the region uses another outside node, because that node would
// not receive its gradient. Outside nodes without inputs, such as constants, are allowed.
func (r *deviceRegion) collectSources(nodes, inputs, enters, outputs []*graph.Node) {
	add := func(source, leaf *graph.Node) {
		if leaf.DType().IsFloat() && !slices.Contains(r.regionLeaves, leaf) {
			r.sources, r.regionLeaves = append(r.sources, source), append(r.regionLeaves, leaf)
		}
	}
	for i, enter := range enters {
		add(inputs[i], enter)
	}
	first := nodes[0].Id()
	use := func(verb string, node *graph.Node) {
		switch {
		case region.IsVariable(node, first):
			// Parameters of closures look like variables but are in another function.
			if node.Function() == enters[0].Function() {
				add(node, node)
			}
		case node.Id() < first && len(node.Inputs()) > 0:
			panic(&Error{Op: "on", Shape: node.Shape().Dimensions, Dim: -1, Devices: r.target.LogicalDevices(),
				Reason: fmt.Sprintf("the region %s node %q from outside", verb, node.String()),
				Hint:   "pass it to OnDeviceMany as an argument"})
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

// exportResult returns a node outside of the region with the value of y. A GoMLX node with a custom
// gradient has only one input, but the region has several sources of gradients. Therefore this
// input is a sum with one term for each source. The terms are zeros and the sum is never read, but
// each term passes the gradient to its source.
func (r *deviceRegion) exportResult(y *graph.Node) *graph.Node {
	slot := &region.Slot{}
	r.target.EmitOp(y, region.Save{Slot: slot}, nil)
	if len(r.sources) == 0 || !y.DType().IsFloat() {
		return r.target.EmitOp(y, region.Load{Slot: slot}, nil)
	}
	// All sources use the same adjoint of y, so one backward region computes all gradients.
	var adjoint *graph.Node
	var gradients []*graph.Node
	backward := func(v *graph.Node) []*graph.Node {
		if v == adjoint {
			return gradients
		}
		gradients = r.trace(func() []*graph.Node {
			r.backward = true
			defer func() { r.backward = false }()
			// enterNode stops gradients that would flow through the adjoint.
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(y, r.enterNode(v))), r.regionLeaves...)
		})
		adjoint = v
		return gradients
	}
	var sum *graph.Node
	for i, source := range r.sources {
		term := r.target.EmitOp(source, region.ZerosLike{Slot: slot},
			func(v *graph.Node) *graph.Node { return backward(v)[i] })
		if sum == nil {
			sum = term
		} else {
			sum = graph.Add(sum, term)
		}
	}
	return r.target.EmitOp(sum, region.Load{Slot: slot}, func(v *graph.Node) *graph.Node { return v })
}
