package region

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/rematerialization"
)

// Argument is a node outside a region that is passed to the region. Mapping describes the
// corresponding value inside.
type Argument struct {
	Node    *graph.Node
	Mapping Mapping
	// Name is the name of the argument in errors.
	Name string
}

// Result is a node inside a region that the region returns. Mapping describes the corresponding
// value outside.
type Result struct {
	Node    *graph.Node
	Mapping Mapping
	Name    string
}

// Trace traces body as a region of the given kind and returns the results outside the region, which
// have gradients. body receives the arguments inside the region. It may also read parameters of the
// graph, arguments of enclosing regions and results of [AllowCapture]; their mapping is [Identity],
// and they have gradients. Integers and values that depend only on constants can be read too, but
// have no gradients. Trace panics with an [*errkind.Fault].
func Trace(target Target, kind Kind, arguments []Argument, body func(in []*graph.Node) []Result) []*graph.Node {
	all, _ := TryTrace(target, kind, arguments, func(in []*graph.Node) ([]Result, bool) { return body(in), true })
	return all
}

// TryTrace is Trace with a body that can cancel the region by returning false. TryTrace then
// discards the region and returns false.
func TryTrace(target Target, kind Kind, arguments []Argument,
	body func(in []*graph.Node) ([]Result, bool)) (all []*graph.Node, ok bool) {
	r := &tracer{target: target, pass: &Pass{Kind: kind}, arguments: slices.Clone(arguments)}
	if len(arguments) == 0 {
		r.fail("", nil, "there are no arguments", "pass the nodes that the region reads")
	}
	for i, a := range arguments {
		if a.Node == nil || a.Node.Graph() != arguments[0].Node.Graph() {
			r.fail(r.argumentName(i), nil, "it is not a node of this graph", "pass nodes of the step")
		}
	}
	g := arguments[0].Node.Graph()
	again := false
	for i, a := range r.arguments {
		if rematerialization.IsRecomputed(a.Node) { // GoMLX does not recompute a region
			r.arguments[i].Node, again = a.Node.StopCheckpoint(), true
		}
	}
	if !g.IsMainFunc() {
		r.fail("", nil, "it is inside a closure (the body of graph.While, or a branch)", "move it out of the closure")
	}
	first := graph.NodeId(len(g.Nodes()))
	enters := make([]*graph.Node, len(arguments))
	r.innerArguments = enters
	r.tracePass(r.pass, func() {
		for i, a := range r.arguments {
			enters[i] = r.enterNode(r.pass, i, a.Node, a.Mapping, r.argumentName(i))
		}
		r.results, ok = body(slices.Clone(enters))
	})
	if !ok {
		return nil, false
	}
	for i, y := range r.results {
		if y.Node == nil || y.Node.Graph() != g {
			r.fail(r.resultName(i), nil, "it is not a node of this graph", "return nodes made from the arguments")
		}
	}
	if len(r.results) == 0 {
		r.fail("", nil, "it returns nothing", "return at least one node")
	}
	r.collectSources(g.Nodes()[first:], enters)
	all = r.emitResults()
	if again {
		for i, y := range all {
			all[i] = y.Checkpoint()
		}
	}
	return all, true
}

type tracer struct {
	target         Target
	pass           *Pass
	arguments      []Argument
	innerArguments []*graph.Node // the arguments inside
	results        []Result
	carriedFrom    []int // the argument whose next value a carried result is
	// outerSources are the nodes outside that receive gradients. innerSources are the corresponding
	// nodes inside, and sourceMappings their mappings.
	outerSources, innerSources []*graph.Node
	sourceMappings             []Mapping
	gradientCache              map[*graph.Node]bool // see carriesGradient
	// adjoints are the current adjoints of the results. adjointsPending is set until the backward
	// pass for these adjoints is traced, which sets gradients.
	adjoints        []*graph.Node
	adjointsPending bool
	gradients       []*graph.Node
	// inBackward is set while a backward pass is traced.
	inBackward bool
}

func (r *tracer) argumentName(i int) string { return describeValue("argument", i, r.arguments[i].Name) }
func (r *tracer) resultName(i int) string   { return describeValue("result", i, r.results[i].Name) }

func describeValue(role string, i int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s %d", role, i)
	}
	return fmt.Sprintf("%s %d (%s)", role, i, name)
}

func (r *tracer) fail(subject string, cause error, reason, hint string) {
	op := r.pass.Kind.String()
	if subject != "" {
		op += ":"
	}
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: errkind.ValueError, Err: cause})
}

// tracePass calls build, whose ops belong to the pass. It ends the pass even if build panics,
// because the step may recover and continue.
func (r *tracer) tracePass(p *Pass, build func()) {
	if err := r.target.BeginPass(p); err != nil {
		panic(err)
	}
	defer r.target.EndPass(p)
	build()
}

// enterNode passes x, argument number index of a pass, into the region, and returns the node
// inside. Only the region's own backward pass computes a gradient of this node. Any other gradient
// that reaches the node would be lost and causes a panic.
func (r *tracer) enterNode(p *Pass, index int, x *graph.Node, mapping Mapping, name string) *graph.Node {
	shape, err := mapping.InnerShape(x.Shape())
	if err != nil {
		r.fail(name, err, "", "use a shape that the mapping can slice")
	}
	p.In = append(p.In, mapping)
	node := r.target.EmitOp(x, Enter{Pass: p, Index: index, Shape: shape}, func(*graph.Node) *graph.Node {
		if !r.inBackward {
			r.fail(name, nil, "a gradient flows into the region, but not through its results: a second derivative, or a node "+
				"of the region that is used outside",
				"take second derivatives of ops outside of regions, and return the nodes that are used outside")
		}
		return nil
	})
	captureStateOf(x.Graph()).allowed[node] = true
	return node
}

// collectSources finds the sources of the region: the differentiable arguments, and the parameters
// and captured nodes that its ops read or that it returns. It panics if the region reads another
// node that has a gradient, because this gradient would be lost.
func (r *tracer) collectSources(nodes, enters []*graph.Node) {
	frozen := frozenOf(nodes[0].Graph()) != nil
	add := func(source, leaf *graph.Node, c Mapping) {
		if _, state := c.(Carry); frozen && !state && !r.carriesGradient(source) {
			return
		}
		if leaf.DType().IsFloat() && !slices.Contains(r.innerSources, leaf) {
			r.outerSources, r.innerSources, r.sourceMappings = append(r.outerSources, source),
				append(r.innerSources, leaf), append(r.sourceMappings, c)
		}
	}
	for i, enter := range enters {
		add(r.arguments[i].Node, enter, r.arguments[i].Mapping)
	}
	first, known := nodes[0].Id(), captureStateOf(nodes[0].Graph())
	use := func(verb string, node *graph.Node) {
		switch {
		case IsVariable(node, first):
			if node.Function() == enters[0].Function() { // parameters of closures are no variables
				add(node, node, Identity{})
			}
		case node.Id() < first && (known.allowed[node] || node.Type() == graph.NodeTypeConvertDType &&
			known.allowed[node.Inputs()[0]]):
			add(node, node, Identity{})
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

// IsVariable reports whether a node is a parameter of the graph, or a conversion of a parameter to
// another dtype that was added before the node with the ID first. Package precision passes
// converted variables to layers.
func IsVariable(node *graph.Node, first graph.NodeId) bool {
	if node.Type() == graph.NodeTypeConvertDType && node.Id() < first {
		node = node.Inputs()[0]
	}
	return node.Type() == graph.NodeTypeParameter
}

// carriesGradient reports whether a node outside the region may receive a gradient, because it
// depends on a float parameter through float values.
func (r *tracer) carriesGradient(node *graph.Node) bool {
	known, ok := r.gradientCache[node]
	if ok {
		return known
	}
	if r.gradientCache == nil {
		r.gradientCache = map[*graph.Node]bool{}
	}
	known = !node.StopGradient() && (node.NumOutputs() > 1 || node.DType().IsFloat()) &&
		(node.Type() == graph.NodeTypeParameter && !isFrozenParameter(node) ||
			slices.ContainsFunc(node.Inputs(), r.carriesGradient))
	r.gradientCache[node] = known
	return known
}

// emitResults returns the region's results as nodes outside the region. In GoMLX, an op with a
// custom gradient has one input, but a region has several inputs and several results. Therefore all
// results depend on one scalar zero, to which each input contributes a zero. When GoMLX requests
// the gradient of this scalar, the adjoints of all results are known, and one backward pass
// computes the gradients of all inputs.
func (r *tracer) emitResults() []*graph.Node {
	r.checkCarries()
	slots := make([]*Slot, len(r.results))
	for i, y := range r.results {
		r.pass.Out = append(r.pass.Out, y.Mapping)
		slots[i] = &Slot{}
		out := r.target.EmitOp(y.Node, Leave{Pass: r.pass, Index: i, Shape: y.Mapping.OuterShape(y.Node.Shape())}, nil)
		r.target.EmitOp(out, Save{slots[i]}, nil)
	}
	r.adjoints = make([]*graph.Node, len(r.results))
	root := r.rootNode()
	all := make([]*graph.Node, len(r.results))
	for i, y := range r.results {
		var gradient func(v *graph.Node) *graph.Node
		if y.Node.DType().IsFloat() {
			gradient = func(v *graph.Node) *graph.Node {
				r.adjoints[i], r.adjointsPending = v, true
				return graph.ZerosLike(root)
			}
		}
		all[i] = r.target.EmitOp(root, Load{slots[i]}, gradient)
	}
	return all
}

func (r *tracer) checkCarries() {
	r.carriedFrom = make([]int, len(r.results))
	var states []int
	for i, a := range r.arguments {
		if _, ok := a.Mapping.(Carry); ok {
			states = append(states, i)
		}
	}
	for i, y := range r.results {
		if _, ok := y.Mapping.(Carry); !ok {
			continue
		}
		if len(states) == 0 {
			r.fail(r.resultName(i), nil, "it is carried, but no argument has its previous value",
				"return one carried result for each carried argument")
		}
		if a := r.arguments[states[0]]; !a.Node.Shape().Equal(y.Node.Shape()) {
			r.fail(r.resultName(i), nil, fmt.Sprintf("its shape is %s, but the shape of the carried argument is %s",
				y.Node.Shape(), a.Node.Shape()),
				"return the shape and the dtype of the argument: the result is the argument of the next iteration")
		}
		r.carriedFrom[i], states = states[0], states[1:]
	}
	if len(states) > 0 {
		r.fail(r.argumentName(states[0]), nil, "it is carried, but no result is its next value",
			"return one carried result for each carried argument")
	}
}

func (r *tracer) rootNode() *graph.Node {
	if len(r.outerSources) == 0 {
		return graph.Const(r.results[0].Node.Graph(), float32(0))
	}
	return r.zeroFrom(r.outerSources, func(i int) *graph.Node {
		if r.adjointsPending { // one backward pass computes the gradients of all terms
			r.gradients, r.adjointsPending = r.traceBackward(), false
		}
		return r.gradients[i]
	})
}

// zeroFrom returns a float32 zero that depends on all inputs. gradient returns the gradient of
// inputs[i].
func (r *tracer) zeroFrom(inputs []*graph.Node, gradient func(i int) *graph.Node) (sum *graph.Node) {
	for i, x := range inputs {
		term := r.target.EmitOp(x, ScalarZero{}, func(*graph.Node) *graph.Node { return gradient(i) })
		if sum == nil {
			sum = term
		} else {
			sum = graph.Add(sum, term)
		}
	}
	return sum
}

// traceBackward traces a backward pass for the current adjoints of the results. It returns the
// gradients of the sources, which are the inputs that have gradients.
func (r *tracer) traceBackward() []*graph.Node {
	p := &Pass{Kind: r.pass.Kind, Forward: r.pass}
	inside := make([]*graph.Node, 0, len(r.innerSources))
	idle := r.statesWithoutGradient()
	for i, y := range r.results {
		if _, carried := y.Mapping.(Carry); carried && y.Node.DType().IsFloat() && r.adjoints[i] == nil &&
			idle[i] == nil {
			// A node with the shape outside: its zeros have the shape of the adjoint.
			r.adjoints[i] = graph.ZerosLike(graph.Zeros(y.Node.Graph(), y.Mapping.OuterShape(y.Node.Shape())))
		}
	}
	adjoints := slices.Clone(r.adjoints)
	r.tracePass(p, func() {
		g := r.innerSources[0].Graph()
		leaves := captureStateOf(g)
		around := leaves.differentiating
		r.inBackward, leaves.differentiating = true, r
		defer func() { r.inBackward, leaves.differentiating = false, around }()
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
			a := r.enterNode(p, next, v, y.Mapping, "adjoint of "+r.resultName(i))
			next++
			// The sum only defines the adjoint of each result for the gradient.
			total = graph.Add(total, graph.ConvertDType(graph.ReduceAllSum(graph.Mul(y.Node, a)), dtypes.Float32))
		}
		inside = graph.Gradient(total, r.innerSources...)
	})
	all := make([]*graph.Node, len(inside))
	still := slices.Collect(maps.Values(idle))
	for i, gradient := range inside {
		if slices.Contains(still, r.innerSources[i]) {
			all[i] = graph.ZerosLike(r.outerSources[i])
			continue
		}
		p.Out = append(p.Out, r.sourceMappings[i])
		all[i] = r.target.EmitOp(gradient, Leave{Pass: p, Index: len(p.Out) - 1,
			Shape: r.sourceMappings[i].OuterShape(gradient.Shape())}, func(*graph.Node) *graph.Node {
			r.fail("", nil,
				"a gradient of its gradient is requested, which a region of this kind or inside another region does not have",
				secondDerivativeHint)
			return nil
		})
	}
	switch r.pass.Kind.(type) {
	case Loop, Block:
		if len(r.target.OpenPasses()) == 0 {
			return r.makeDifferentiable(all, adjoints)
		}
	}
	return all
}
