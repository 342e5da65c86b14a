package spmd

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// GoMLX forgets the gradient of the node that Node.Checkpoint is called on: a fault of how it makes
// the checkpoint again. It then asks for the gradient of an identity op, of which it knows none.
// The traces know those of their ops.
//
// It does not say either of which node it makes the gradient: that is what the other gradients are
// wrapped for.
func init() {
	if _, ok := graph.VJPRegistration[graph.NodeTypeIdentity]; !ok {
		graph.VJPRegistration[graph.NodeTypeIdentity] = forgotten
	}
	for kind, gradient := range graph.VJPRegistration {
		if kind == graph.NodeTypeIdentity {
			continue // a trace's op, see emit
		}
		graph.VJPRegistration[kind] = func(node *graph.Node, adjoints []*graph.Node, shape shapes.Shape) []*graph.Node {
			differentiate(node, true)
			defer differentiate(node, false) // what it returns is added up next
			return gradient(node, adjoints, shape)
		}
	}
}

// differentiate says that the gradient of a node is made next.
func differentiate(node *graph.Node, gomlx bool) {
	for _, v := range graph.InternalBackendOutputs(node) {
		lowering.Differentiate(v, gomlx)
	}
}

func forgotten(node *graph.Node, adjoints []*graph.Node, _ shapes.Shape) []*graph.Node {
	if t, ok := node.Graph().Backend().(*Trace); ok {
		if gradient, ok := t.gradients[node]; ok {
			if gradient == nil { // it was to stop
				return []*graph.Node{nil}
			}
			return []*graph.Node{gradient(adjoints[0])}
		}
	}
	panic(fault(node.String(), "its gradient is not known: GoMLX forgets it where Checkpoint is called on an identity op with a gradient of its own, or that stops it",
		"call Checkpoint on another node, or use remat.Block"))
}
