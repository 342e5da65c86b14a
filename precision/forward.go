package precision

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Target is the interface of a graph's backend that lets a policy say in what it adds up.
type Target interface {
	// SumIn sets the dtypes in which the ops that follow add up numbers of half precision:
	// reductions in accumulate, and the parts that logical devices have of a product in partial.
	SumIn(accumulate, partial dtypes.DType)
	// Observe records the ops that follow until stop is called. used reports whether one of them
	// computes with floats of the dtype. other describes the first product of floats of another
	// dtype, or the first such op, with its line; it is empty if there is no such op.
	Observe(dtype dtypes.DType) (stop func() (used bool, other string))
}

// Forward runs f, the forward part of a step, such as a model and its loss, by the policy, and
// returns what f returns in the policy's Output. f gets the arguments in, the floats among them in
// Compute. Within f the variables of the graph's store that are in Parameters are in Compute for
// every layer that asks for them so, which it does if its input is; a layer that is given a float32
// input has its variables in float32. Layers and initializers are GoMLX's, unchanged.
//
// Outside of f the variables are what they are in the store, in Parameters: gradients, the
// optimizer, checkpoints. A gradient is taken through the cast: its parts are computed in Compute
// and arrive in Parameters. What a layer writes to a variable within f, such as an average, is
// computed once more in Parameters if it is made of sums, products, quotients, powers, minima and
// maxima of the variable's old value and of numbers; otherwise the layer's own value is converted.
//
// The code of f runs twice in a step's first trace. Forward may be called several times in a step,
// but not within f. A zero policy calls f and nothing else. Forward panics with an
// [*errkind.Fault] for an invalid policy, for a policy whose Compute no operation of f computes in
// although others compute in another float dtype, for a trainable variable that the store has in
// Compute itself, and for a graph that is none of package strategy's or of a [TraceState]'s.
func (p Policy) Forward(g *graph.Graph, in []*graph.Node, f func(in []*graph.Node) []*graph.Node) []*graph.Node {
	if p == (Policy{}) {
		return f(in)
	}
	if err := p.Validate(); err != nil {
		panic(err)
	}
	p = p.Filled()
	t := tracedOf(g)
	switch {
	case t == nil:
		panic(wrong("Forward", "call it in a step of package strategy, or attach a precision.TraceState to the graph", "the graph is none of a step's"))
	case t.running:
		panic(wrong("Forward", "give the whole forward part one policy", "called in the forward part of another policy"))
	case !g.IsMainFunc():
		panic(wrong("Forward", "call it around the loop or the branch", "called inside a closure (a loop body or a branch)"))
	}
	t.policy, t.running = p, true
	defer func() { t.running = false }()
	target := p.sums(g)
	inside := make([]*graph.Node, len(in))
	for i, x := range in {
		inside[i] = x
		if x != nil && isFloat(x.DType()) && x.DType() != p.Compute {
			inside[i] = graph.ConvertDType(x, p.Compute)
			t.exact[inside[i]] = x
		}
	}
	call := t.next()
	var out []*graph.Node
	run := func() {
		stop := target.Observe(p.Compute)
		defer stop() // also if f panics
		out = f(inside)
		if used, other := stop(); !used && other != "" {
			panic(p.unused(other))
		}
	}
	switch store := model.GetStore(g); {
	case store == nil || p.Compute == p.Parameters:
		run()
	case !call.known:
		call.discover(p, g, store, run)
	default:
		call.with(p, g, store, run)
	}
	results := make([]*graph.Node, len(out))
	for i, y := range out {
		results[i] = p.output(t, y)
	}
	return results
}

// unused returns an error for a policy whose Compute dtype no operation uses.
func (p Policy) unused(other string) error {
	return wrong("policy with Compute "+p.Compute.String(),
		"a layer computes in the dtype of its input: convert the input of that layer with precision.Compute, as in x = precision.Compute(x)",
		"no operation of the model computes in %s; the first one in another dtype is the %s", p.Compute, other)
}

// sums sets the dtypes in which the backend adds up.
func (p Policy) sums(g *graph.Graph) Target {
	if target, ok := g.Backend().(Target); ok {
		target.SumIn(p.Accumulate, p.Partial)
		return target
	}
	panic(&errkind.Fault{Op: "precision:", Subject: "Forward", Reason: "the backend of the graph cannot be told in what to add up",
		Hint: "trace the step with package strategy", Class: errkind.NotImplementedError})
}

func (p Policy) output(t *graphState, y *graph.Node) *graph.Node {
	if y == nil {
		return nil
	}
	if x := t.exact[y]; x != nil {
		y = x
	}
	if isFloat(y.DType()) && y.DType() != p.Output {
		y = graph.ConvertDType(y, p.Output)
	}
	return y
}

// Of returns the policy of the forward part of the graph that is being traced, and the zero Policy
// without one.
func Of(g *graph.Graph) Policy {
	if t := tracedOf(g); t != nil && t.running {
		return t.policy
	}
	return Policy{}
}

// Applied returns the policy of the last forward part of the graph, also when that part is complete, and
// the zero Policy for a graph without one. It is for programs whose policy is an option of the command
// line.
func Applied(g *graph.Graph) Policy {
	if t := tracedOf(g); t != nil {
		return t.policy
	}
	return Policy{}
}

// Output returns a float in the Output of the graph's policy: write it around the logits of a
// model, and around float labels, so that the loss is computed in float32. An argument that the
// policy has cast is returned as it was before. Without a policy it returns x.
func Output(x *graph.Node) *graph.Node {
	if t := tracedOf(x.Graph()); t != nil && t.policy != (Policy{}) {
		return t.policy.output(t, x)
	}
	return x
}

// Compute returns a float in the Compute of the graph's policy: write it around what is made in
// another dtype in the middle of a model, and around variables of the strategy, which are read as
// they are. Without a policy it returns x.
func Compute(x *graph.Node) *graph.Node {
	t := tracedOf(x.Graph())
	if t == nil || t.policy == (Policy{}) || !isFloat(x.DType()) || x.DType() == t.policy.Compute {
		return x
	}
	return graph.ConvertDType(x, t.policy.Compute)
}

// Full runs f, a layer or a few, in Parameters: it gets x in that dtype, has its variables in it,
// and its result is converted to the dtype of x. Batch normalisations are more exact so. Without a
// policy it calls f.
func Full(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	t := tracedOf(x.Graph())
	if t == nil || t.policy == (Policy{}) || !isFloat(x.DType()) || x.DType() == t.policy.Parameters {
		return f(x)
	}
	y := f(graph.ConvertDType(x, t.policy.Parameters))
	if y == nil || y.DType() != t.policy.Parameters {
		return y
	}
	return graph.ConvertDType(y, x.DType())
}

// ToReduce returns a gradient in the policy's Reduce, to be added up over the replicas.
func (p Policy) ToReduce(gradient *graph.Node) *graph.Node {
	if p.Reduce == dtypes.InvalidDType || !isFloat(gradient.DType()) {
		return gradient
	}
	return graph.ConvertDType(gradient, p.Reduce)
}
