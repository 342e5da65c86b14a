package precision

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Target is implemented by graph backends that can set the dtypes of sums.
type Target interface {
	// SetSumDTypes sets the dtypes in which the following ops accumulate half-precision numbers:
	// accumulate for reductions, and partial for partial products on several logical devices.
	SetSumDTypes(accumulate, partial dtypes.DType)
	// Observe observes the following ops until stop is called. The result used of stop reports
	// whether an op computes with floats of the dtype. The result other describes the first product
	// of floats in another dtype, or else the first op in another dtype, with its source line. It
	// is empty if there is no such op.
	Observe(dtype dtypes.DType) (stop func() (used bool, other string))
}

// Forward runs f, the forward part of a step, with the policy. f usually contains a model and its
// loss. Forward passes the arguments to f with floats converted to Compute, and returns the results
// of f with floats converted to Output. Within f, layers that request a variable in Compute receive
// a cast of the variable, which is stored in Parameters. A layer requests its variables in the
// dtype of its input, so a layer with a float32 input reads them in float32.
//
// Outside of f, variables, gradients, the optimizer and checkpoints use Parameters. Gradients are
// computed in Compute and converted to Parameters by the gradient of the cast. If f updates a
// variable with an elementwise formula of its old value and other numbers (sums, products,
// quotients, powers, minima, maxima), as for a moving average, the update is computed again in
// Parameters. Otherwise the new value is converted to Parameters.
//
// f runs twice in the first trace of a step. A step can call Forward several times, but not within
// f. A zero policy only calls f.
//
// Forward panics with an [*errkind.Fault] if the policy is invalid, if all float operations of f
// use another dtype than Compute, if a trainable variable is stored in Compute, or if the graph
// belongs neither to package strategy nor to a [TraceState].
func (p Policy) Forward(g *graph.Graph, in []*graph.Node, f func(in []*graph.Node) []*graph.Node) []*graph.Node {
	if p == (Policy{}) {
		return f(in)
	}
	if err := p.Validate(); err != nil {
		panic(err)
	}
	p = p.WithDefaults()
	t := graphStateOf(g)
	switch {
	case t == nil:
		panic(invalidError("Forward", "call it in a step of package strategy, or attach a precision.TraceState to the graph",
			"the graph does not belong to a step"))
	case t.inForward:
		panic(invalidError("Forward", "use one policy for the complete forward part",
			"called in the forward part of another policy"))
	case !g.IsMainFunc():
		panic(invalidError("Forward", "call it around the loop or branch",
			"called inside a closure (a loop body or a branch)"))
	}
	t.policy, t.inForward = p, true
	defer func() { t.inForward = false }()
	target := p.setSumDTypes(g)
	inside := make([]*graph.Node, len(in))
	for i, x := range in {
		inside[i] = x
		if x != nil && isModelFloat(x.DType()) && x.DType() != p.Compute {
			inside[i] = graph.ConvertDType(x, p.Compute)
			t.originals[inside[i]] = x
		}
	}
	call := t.nextCall()
	var out []*graph.Node
	run := func() {
		stop := target.Observe(p.Compute)
		defer stop() // also if f panics
		out = f(inside)
		if used, other := stop(); !used && other != "" {
			panic(p.unusedComputeError(other))
		}
	}
	switch store := model.GetStore(g); {
	case store == nil || p.Compute == p.Parameters:
		run()
	case !call.known:
		call.discoverDTypes(p, g, store, run)
	default:
		call.traceWithCasts(p, g, store, run)
	}
	results := make([]*graph.Node, len(out))
	for i, y := range out {
		results[i] = p.castOutput(t, y)
	}
	return results
}

// unusedComputeError returns the error for a model without an operation in the Compute dtype. other
// describes the first operation in another dtype.
func (p Policy) unusedComputeError(other string) error {
	return invalidError("policy with Compute "+p.Compute.String(),
		"a layer computes in the dtype of its input: convert the input of that layer with precision.Compute, as in x = "+
			"precision.Compute(x)",
		"no operation of the model computes in %s; the first one in another dtype is the %s", p.Compute, other)
}

func (p Policy) setSumDTypes(g *graph.Graph) Target {
	if target, ok := g.Backend().(Target); ok {
		target.SetSumDTypes(p.Accumulate, p.Partial)
		return target
	}
	panic(&errkind.Fault{Op: "precision:", Subject: "Forward",
		Reason: "the backend of the graph does not support the dtypes of sums",
		Hint:   "trace the step with package strategy", Class: errkind.NotImplementedError})
}

func (p Policy) castOutput(t *graphState, y *graph.Node) *graph.Node {
	if y == nil {
		return nil
	}
	if x := t.originals[y]; x != nil {
		y = x
	}
	if isModelFloat(y.DType()) && y.DType() != p.Output {
		y = graph.ConvertDType(y, p.Output)
	}
	return y
}

// Current returns the policy of the call of [Policy.Forward] that is being traced, or the zero
// Policy outside of such calls.
func Current(g *graph.Graph) Policy {
	if t := graphStateOf(g); t != nil && t.inForward {
		return t.policy
	}
	return Policy{}
}

// Applied returns the policy of the last call of [Policy.Forward] in the graph, or the zero Policy
// if there was none. Programs use it to check that a policy from the command line has an effect.
func Applied(g *graph.Graph) Policy {
	if t := graphStateOf(g); t != nil {
		return t.policy
	}
	return Policy{}
}

// Output converts a float to the Output dtype of the graph's policy. Apply it to the logits of a
// model and to float labels to compute the loss in float32. If x is an argument that
// [Policy.Forward] has cast, Output returns the original argument. Without a policy it returns x.
func Output(x *graph.Node) *graph.Node {
	if t := graphStateOf(x.Graph()); t != nil && t.policy != (Policy{}) {
		return t.policy.castOutput(t, x)
	}
	return x
}

// Compute converts a float to the Compute dtype of the graph's policy. Apply it to floats that a
// model computes in another dtype, and to variables of the strategy, which the policy does not
// cast. Without a policy it returns x.
func Compute(x *graph.Node) *graph.Node {
	t := graphStateOf(x.Graph())
	if t == nil || t.policy == (Policy{}) || !isModelFloat(x.DType()) || x.DType() == t.policy.Compute {
		return x
	}
	return graph.ConvertDType(x, t.policy.Compute)
}

// FullPrecision runs the layers in f in the Parameters dtype. f receives x in this dtype, its
// layers read their variables in this dtype, and the result is converted to the dtype of x. This
// makes batch normalizations more accurate. Without a policy it only calls f.
func FullPrecision(x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	t := graphStateOf(x.Graph())
	if t == nil || t.policy == (Policy{}) || !isModelFloat(x.DType()) || x.DType() == t.policy.Parameters {
		return f(x)
	}
	y := f(graph.ConvertDType(x, t.policy.Parameters))
	if y == nil || y.DType() != t.policy.Parameters {
		return y
	}
	return graph.ConvertDType(y, x.DType())
}

// CastGradient converts a gradient to the policy's Reduce dtype, before it is summed over the
// replicas.
func (p Policy) CastGradient(gradient *graph.Node) *graph.Node {
	if p.Reduce == dtypes.InvalidDType || !isModelFloat(gradient.DType()) {
		return gradient
	}
	return graph.ConvertDType(gradient, p.Reduce)
}
