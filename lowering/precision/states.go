package precision

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// updatedStates returns the new values of the variables that the model has updated, converted to or
// recomputed in the Parameters dtype.
func updatedStates(views []*castVariable) map[*castVariable]*graph.Node {
	states := map[*castVariable]*graph.Node{}
	e := &recomputer{values: map[*graph.Node]*graph.Node{}, dependent: map[*graph.Node]bool{},
		recomputable: map[*graph.Node]bool{}}
	for _, w := range views {
		now := w.variable.NodeValue(w.original.Graph())
		if now == w.cast {
			continue
		}
		states[w] = now
		e.values[w.cast], e.dependent[w.cast] = w.original, true
		e.firstState = w.original
	}
	for _, w := range views {
		now, ok := states[w]
		switch {
		case !ok || now.DType() == w.original.DType():
		case e.isRecomputable(now):
			states[w] = e.recompute(now)
		default:
			states[w] = graph.ConvertDType(now, w.original.DType())
		}
	}
	return states
}

// recomputer computes the new value of a layer's state, such as a moving average, again in the
// Parameters dtype in which the state is stored. The layer computed the value in the Compute dtype,
// which is less exact.
type recomputer struct {
	firstState              *graph.Node // a state in Parameters
	values                  map[*graph.Node]*graph.Node
	dependent, recomputable map[*graph.Node]bool // caches of dependsOnState and isRecomputable
}

func (e *recomputer) dependsOnState(n *graph.Node) bool {
	known, ok := e.dependent[n]
	if ok {
		return known
	}
	e.dependent[n] = false
	for _, input := range n.Inputs() {
		if e.dependsOnState(input) {
			e.dependent[n] = true
		}
	}
	return e.dependent[n]
}

// isRecomputable reports whether n can be recomputed from states in the Parameters dtype. All ops
// between the states and n must be elementwise.
func (e *recomputer) isRecomputable(n *graph.Node) bool {
	known, ok := e.recomputable[n]
	if !ok {
		known = e.values[n] != nil || isModelFloat(n.DType()) && (!e.dependsOnState(n) || isElementwise(n) &&
			!slices.ContainsFunc(n.Inputs(), func(x *graph.Node) bool { return !e.isRecomputable(x) }))
		e.recomputable[n] = known
	}
	return known
}

func isElementwise(n *graph.Node) bool {
	kind := n.Type()
	return binaryOps[kind] != nil || unaryOps[kind] != nil || kind == graph.NodeTypeReshape ||
		kind == graph.NodeTypeConvertDType
}

func (e *recomputer) recompute(n *graph.Node) *graph.Node {
	if x := e.values[n]; x != nil {
		return x
	}
	var x *graph.Node
	in := n.Inputs()
	switch kind := n.Type(); {
	case !e.dependsOnState(n):
		x = graph.ConvertDType(n, e.firstState.DType())
	case kind == graph.NodeTypeConvertDType:
		x = e.recompute(in[0])
	case kind == graph.NodeTypeReshape:
		x = graph.Reshape(e.recompute(in[0]), n.Shape().Dimensions...)
	case binaryOps[kind] != nil:
		x = binaryOps[kind](e.recompute(in[0]), e.recompute(in[1]))
	default:
		x = unaryOps[kind](e.recompute(in[0]))
	}
	e.values[n] = x
	return x
}

var binaryOps = map[graph.NodeType]func(a, b *graph.Node) *graph.Node{
	graph.NodeTypeAdd: graph.Add, graph.NodeTypeSub: graph.Sub, graph.NodeTypeMul: graph.Mul,
	graph.NodeTypeDiv: graph.Div,
	graph.NodeTypeMin: graph.Min, graph.NodeTypeMax: graph.Max, graph.NodeTypePow: graph.Pow,
}

var unaryOps = map[graph.NodeType]func(x *graph.Node) *graph.Node{
	graph.NodeTypeNeg: graph.Neg, graph.NodeTypeAbs: graph.Abs, graph.NodeTypeSqrt: graph.Sqrt,
	graph.NodeTypeRsqrt: graph.Rsqrt,
}
