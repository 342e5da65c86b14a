package precision

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// written returns what a forward part has written to its views, in Parameters.
func written(views []*view) map[*view]*graph.Node {
	states := map[*view]*graph.Node{}
	e := &exactly{of: map[*graph.Node]*graph.Node{}, depends: map[*graph.Node]bool{}, possible: map[*graph.Node]bool{}}
	for _, w := range views {
		now := w.variable.NodeValue(w.was.Graph())
		if now == w.cast {
			continue
		}
		states[w] = now
		e.of[w.cast], e.depends[w.cast] = w.was, true
		e.first = w.was
	}
	for _, w := range views {
		now, ok := states[w]
		switch {
		case !ok || now.DType() == w.was.DType():
		case e.can(now):
			states[w] = e.value(now)
		default:
			states[w] = graph.ConvertDType(now, w.was.DType())
		}
	}
	return states
}

// exactly computes in Parameters what a layer has computed from its states in Compute.
type exactly struct {
	first             *graph.Node // a state in Parameters
	of                map[*graph.Node]*graph.Node
	depends, possible map[*graph.Node]bool // see on and can
}

// on reports whether a node depends on a state.
func (e *exactly) on(n *graph.Node) bool {
	known, ok := e.depends[n]
	if ok {
		return known
	}
	e.depends[n] = false
	for _, input := range n.Inputs() {
		if e.on(input) {
			e.depends[n] = true
		}
	}
	return e.depends[n]
}

// can reports whether a node can be computed from the states themselves.
func (e *exactly) can(n *graph.Node) bool {
	known, ok := e.possible[n]
	if !ok {
		known = e.of[n] != nil || isFloat(n.DType()) && (!e.on(n) || computable(n) && !slices.ContainsFunc(n.Inputs(), func(x *graph.Node) bool { return !e.can(x) }))
		e.possible[n] = known
	}
	return known
}

func computable(n *graph.Node) bool {
	kind := n.Type()
	return binary[kind] != nil || unary[kind] != nil || kind == graph.NodeTypeReshape || kind == graph.NodeTypeConvertDType
}

func (e *exactly) value(n *graph.Node) *graph.Node {
	if x := e.of[n]; x != nil {
		return x
	}
	var x *graph.Node
	in := n.Inputs()
	switch kind := n.Type(); {
	case !e.on(n):
		x = graph.ConvertDType(n, e.first.DType())
	case kind == graph.NodeTypeConvertDType:
		x = e.value(in[0])
	case kind == graph.NodeTypeReshape:
		x = graph.Reshape(e.value(in[0]), n.Shape().Dimensions...)
	case binary[kind] != nil:
		x = binary[kind](e.value(in[0]), e.value(in[1]))
	default:
		x = unary[kind](e.value(in[0]))
	}
	e.of[n] = x
	return x
}

var binary = map[graph.NodeType]func(a, b *graph.Node) *graph.Node{
	graph.NodeTypeAdd: graph.Add, graph.NodeTypeSub: graph.Sub, graph.NodeTypeMul: graph.Mul, graph.NodeTypeDiv: graph.Div,
	graph.NodeTypeMin: graph.Min, graph.NodeTypeMax: graph.Max, graph.NodeTypePow: graph.Pow,
}

var unary = map[graph.NodeType]func(x *graph.Node) *graph.Node{
	graph.NodeTypeNeg: graph.Neg, graph.NodeTypeAbs: graph.Abs, graph.NodeTypeSqrt: graph.Sqrt, graph.NodeTypeRsqrt: graph.Rsqrt,
}
