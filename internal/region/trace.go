package region

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/recomputed"
)

// Argument is an argument of a region: a node outside, and its crossing.
type Argument struct {
	Node     *graph.Node
	Crossing Crossing
	// Name is the name of the argument in errors.
	Name string
}

// Result is a result of a region: a node inside, and its crossing.
type Result struct {
	Node     *graph.Node
	Crossing Crossing
	Name     string
}

// Trace traces body as a region of the given kind and returns its results outside, which have
// gradients. The parameters of body are the arguments inside. body may also read parameters of the
// graph, arguments of enclosing regions and results of [Leaf], which cross as [Same] and have
// gradients, and values without gradients: integers, and values that depend only on constants. It
// panics with an [*errkind.Fault].
func Trace(target Target, kind Kind, arguments []Argument, body func(in []*graph.Node) []Result) []*graph.Node {
	all, _ := Attempt(target, kind, arguments, func(in []*graph.Node) ([]Result, bool) { return body(in), true })
	return all
}

// Attempt is Trace with a body that can cancel the region by returning false. Attempt then discards
// the region and returns false.
func Attempt(target Target, kind Kind, arguments []Argument, body func(in []*graph.Node) ([]Result, bool)) (all []*graph.Node, ok bool) {
	r := &tracer{target: target, pass: &Pass{Kind: kind}, arguments: slices.Clone(arguments)}
	if len(arguments) == 0 {
		r.fail("", nil, "there are no arguments", "pass the nodes that the region reads")
	}
	for i, a := range arguments {
		if a.Node == nil || a.Node.Graph() != arguments[0].Node.Graph() {
			r.fail(r.argument(i), nil, "it is not a node of this graph", "pass nodes of the step")
		}
	}
	g := arguments[0].Node.Graph()
	again := false
	for i, a := range r.arguments {
		if recomputed.Of(a.Node) { // GoMLX does not recompute a region
			r.arguments[i].Node, again = a.Node.StopCheckpoint(), true
		}
	}
	if !g.IsMainFunc() {
		r.fail("", nil, "it is inside a closure (the body of graph.While, or a branch)", "move it out of the closure")
	}
	first := graph.NodeId(len(g.Nodes()))
	enters := make([]*graph.Node, len(arguments))
	r.enters = enters
	r.within(r.pass, func() {
		for i, a := range r.arguments {
			enters[i] = r.enter(r.pass, i, a.Node, a.Crossing, r.argument(i))
		}
		r.results, ok = body(slices.Clone(enters))
	})
	if !ok {
		return nil, false
	}
	for i, y := range r.results {
		if y.Node == nil || y.Node.Graph() != g {
			r.fail(r.result(i), nil, "it is not a node of this graph", "return nodes made from the arguments")
		}
	}
	if len(r.results) == 0 {
		r.fail("", nil, "it returns nothing", "return at least one node")
	}
	r.collect(g.Nodes()[first:], enters)
	all = r.leave()
	if again {
		for i, y := range all {
			all[i] = y.Checkpoint()
		}
	}
	return all, true
}

// tracer is the state of one call of Trace.
type tracer struct {
	target    Target
	pass      *Pass
	arguments []Argument
	enters    []*graph.Node // the arguments inside
	results   []Result
	before    []int // the argument whose next value a carried result is
	// sources are the nodes outside that receive gradients. leaves are the corresponding nodes
	// inside. crossings are their crossings.
	sources, leaves []*graph.Node
	crossings       []Crossing
	carries         map[*graph.Node]bool // see carriesGradient
	// adjoints are the current adjoints of the results. arrived is set until the backward pass for
	// these adjoints is traced, which sets gradients.
	adjoints  []*graph.Node
	arrived   bool
	gradients []*graph.Node
	// backward is set while a backward pass is traced.
	backward bool
}

func (r *tracer) argument(i int) string { return named("argument", i, r.arguments[i].Name) }
func (r *tracer) result(i int) string   { return named("result", i, r.results[i].Name) }

func named(role string, i int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s %d", role, i)
	}
	return fmt.Sprintf("%s %d (%s)", role, i, name)
}

// fail panics with an error.
func (r *tracer) fail(subject string, cause error, reason, hint string) {
	op := r.pass.Kind.String()
	if subject != "" {
		op += ":"
	}
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: errkind.ValueError, Err: cause})
}

// within traces the ops that build adds to a pass. A panic ends the pass too, because the step may
// recover from it and continue.
func (r *tracer) within(p *Pass, build func()) {
	if err := r.target.BeginPass(p); err != nil {
		panic(err)
	}
	defer r.target.EndPass(p)
	build()
}

// enter returns the node inside a pass for a node outside. The gradient of a region is computed
// from its results to these nodes and ends there. Another gradient that flows here would be lost.
func (r *tracer) enter(p *Pass, i int, x *graph.Node, c Crossing, what string) *graph.Node {
	shape, err := c.Inside(x.Shape())
	if err != nil {
		r.fail(what, err, "", "give it a shape that can be cut")
	}
	p.In = append(p.In, c)
	node := r.target.EmitBorder(x, Enter{Pass: p, Index: i, Shape: shape}, func(*graph.Node) *graph.Node {
		if !r.backward {
			r.fail(what, nil, "a gradient arrives inside the region, past its results: a gradient of a gradient, or a node of the region that is used outside",
				"take second derivatives of ops outside of regions, and return what is used outside")
		}
		return nil
	})
	leavesOf(x.Graph()).nodes[node] = true
	return node
}

// collect finds the region's sources: its arguments, and the parameters and leaves that its ops
// read or that it returns. Any other node from outside would lose its gradient at the region's
// border.
func (r *tracer) collect(nodes, enters []*graph.Node) {
	frozen := frozenOf(nodes[0].Graph()) != nil
	add := func(source, leaf *graph.Node, c Crossing) {
		if _, state := c.(Carry); frozen && !state && !r.carriesGradient(source) {
			return
		}
		if leaf.DType().IsFloat() && !slices.Contains(r.leaves, leaf) {
			r.sources, r.leaves, r.crossings = append(r.sources, source), append(r.leaves, leaf), append(r.crossings, c)
		}
	}
	for i, enter := range enters {
		add(r.arguments[i].Node, enter, r.arguments[i].Crossing)
	}
	first, known := nodes[0].Id(), leavesOf(nodes[0].Graph())
	use := func(verb string, node *graph.Node) {
		switch {
		case IsVariable(node, first):
			if node.Function() == enters[0].Function() { // parameters of closures are no variables
				add(node, node, Same{})
			}
		case node.Id() < first && (known.nodes[node] || node.Type() == graph.NodeTypeConvertDType && known.nodes[node.Inputs()[0]]):
			add(node, node, Same{})
		case node.Id() < first && r.carriesGradient(node):
			r.fail("", nil, fmt.Sprintf("it %s node %q from outside", verb, node.String()), "pass it as an argument")
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
	for _, y := range r.results {
		use("returns", y.Node)
	}
}

// IsVariable reports whether a node is a parameter, or a parameter that was converted before a
// region whose first node is given. Package precision passes variables to layers in this form.
func IsVariable(node *graph.Node, first graph.NodeId) bool {
	if node.Type() == graph.NodeTypeConvertDType && node.Id() < first {
		node = node.Inputs()[0]
	}
	return node.Type() == graph.NodeTypeParameter
}

// carriesGradient reports whether a node outside may pass on a gradient: whether it depends on a
// float parameter through floats.
func (r *tracer) carriesGradient(node *graph.Node) bool {
	known, ok := r.carries[node]
	if ok {
		return known
	}
	if r.carries == nil {
		r.carries = map[*graph.Node]bool{}
	}
	known = !node.StopGradient() && (node.NumOutputs() > 1 || node.DType().IsFloat()) &&
		(node.Type() == graph.NodeTypeParameter && !frozenParameter(node) || slices.ContainsFunc(node.Inputs(), r.carriesGradient))
	r.carries[node] = known
	return known
}

// leave returns the results outside. A node of GoMLX passes gradients to one input, but the region
// has several sources and several results. All results therefore depend on one number, zero, which
// is a sum over the sources. Their adjoints are stored until the adjoint of the number is
// requested, and each term of the sum then has the gradient of its source.
func (r *tracer) leave() []*graph.Node {
	r.match()
	slots := make([]*Slot, len(r.results))
	for i, y := range r.results {
		r.pass.Out = append(r.pass.Out, y.Crossing)
		slots[i] = &Slot{}
		out := r.target.EmitBorder(y.Node, Leave{Pass: r.pass, Index: i, Shape: y.Crossing.Outside(y.Node.Shape())}, nil)
		r.target.EmitBorder(out, Save{slots[i]}, nil)
	}
	r.adjoints = make([]*graph.Node, len(r.results))
	root := r.root()
	all := make([]*graph.Node, len(r.results))
	for i, y := range r.results {
		var gradient func(v *graph.Node) *graph.Node
		if y.Node.DType().IsFloat() {
			gradient = func(v *graph.Node) *graph.Node {
				r.adjoints[i], r.arrived = v, true
				return graph.ZerosLike(root)
			}
		}
		all[i] = r.target.EmitBorder(root, Load{slots[i]}, gradient)
	}
	return all
}

// match checks that carried results have the shapes of the carried arguments.
func (r *tracer) match() {
	r.before = make([]int, len(r.results))
	var states []int
	for i, a := range r.arguments {
		if _, ok := a.Crossing.(Carry); ok {
			states = append(states, i)
		}
	}
	for i, y := range r.results {
		if _, ok := y.Crossing.(Carry); !ok {
			continue
		}
		if len(states) == 0 {
			r.fail(r.result(i), nil, "it is carried, but no argument is its value before", "return one carried result for each carried argument")
		}
		if a := r.arguments[states[0]]; !a.Node.Shape().Equal(y.Node.Shape()) {
			r.fail(r.result(i), nil, fmt.Sprintf("it is %s, and %s came in", y.Node.Shape(), a.Node.Shape()),
				"return the shape and the dtype that came in: a run begins with what the run before gave")
		}
		r.before[i], states = states[0], states[1:]
	}
	if len(states) > 0 {
		r.fail(r.argument(states[0]), nil, "it is carried, but no result is its next value", "return one carried result for each carried argument")
	}
}

// root returns the number that all results depend on.
func (r *tracer) root() *graph.Node {
	if len(r.sources) == 0 {
		return graph.Const(r.results[0].Node.Graph(), float32(0))
	}
	return r.zeroOf(r.sources, func(i int) *graph.Node {
		if r.arrived { // one backward pass computes the gradients of all terms
			r.gradients, r.arrived = r.differentiate(), false
		}
		return r.gradients[i]
	})
}

// zeroOf returns a float32 zero that depends on all inputs. gradient returns the gradient of input
// i.
func (r *tracer) zeroOf(inputs []*graph.Node, gradient func(i int) *graph.Node) (sum *graph.Node) {
	for i, x := range inputs {
		term := r.target.EmitBorder(x, Zero{}, func(*graph.Node) *graph.Node { return gradient(i) })
		if sum == nil {
			sum = term
		} else {
			sum = graph.Add(sum, term)
		}
	}
	return sum
}

// differentiate traces a backward pass for the current adjoints, and returns the gradients of the
// sources.
func (r *tracer) differentiate() []*graph.Node {
	p := &Pass{Kind: r.pass.Kind, Forward: r.pass}
	inside := make([]*graph.Node, 0, len(r.leaves))
	idle := r.idle()
	for i, y := range r.results {
		if _, carried := y.Crossing.(Carry); carried && y.Node.DType().IsFloat() && r.adjoints[i] == nil && idle[i] == nil {
			// A node with the shape outside: its zeros have the shape of the adjoint.
			r.adjoints[i] = graph.ZerosLike(graph.Zeros(y.Node.Graph(), y.Crossing.Outside(y.Node.Shape())))
		}
	}
	adjoints := slices.Clone(r.adjoints)
	r.within(p, func() {
		g := r.leaves[0].Graph()
		leaves := leavesOf(g)
		around := leaves.of
		r.backward, leaves.of = true, r
		defer func() { r.backward, leaves.of = false, around }()
		total := graph.Scalar(g, dtypes.Float32, 0)
		next := 0
		for i, y := range r.results {
			if !y.Node.DType().IsFloat() {
				continue
			}
			v := r.adjoints[i]
			if v == nil {
				continue
			}
			r.adjoints[i] = nil
			a := r.enter(p, next, v, y.Crossing, "adjoint of "+r.result(i))
			next++
			// The sum only defines the adjoint of each result for the gradient.
			total = graph.Add(total, graph.ConvertDType(graph.ReduceAllSum(graph.Mul(y.Node, a)), dtypes.Float32))
		}
		inside = graph.Gradient(total, r.leaves...)
	})
	all := make([]*graph.Node, len(inside))
	still := slices.Collect(maps.Values(idle))
	for i, gradient := range inside {
		if slices.Contains(still, r.leaves[i]) {
			all[i] = graph.ZerosLike(r.sources[i])
			continue
		}
		p.Out = append(p.Out, r.crossings[i])
		all[i] = r.target.EmitBorder(gradient, Leave{Pass: p, Index: len(p.Out) - 1, Shape: r.crossings[i].Outside(gradient.Shape())}, func(*graph.Node) *graph.Node {
			r.fail("", nil, "a gradient of its gradient is requested, which a region of this kind or inside another region does not have", secondHint)
			return nil
		})
	}
	switch r.pass.Kind.(type) {
	case Loop, Block:
		if len(r.target.Open()) == 0 {
			return r.differentiable(all, adjoints)
		}
	}
	return all
}
