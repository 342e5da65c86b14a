package spmd

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// init replaces GoMLX's gradient functions. GoMLX loses the gradient of a node on which
// Node.Checkpoint was called, and requests the gradient of an identity op instead, which it does
// not define. identityGradient returns the gradient that the Trace recorded. GoMLX also does not
// report the node whose gradient it computes, so all other gradient functions are wrapped to report
// it.
func init() {
	if _, ok := graph.VJPRegistration[graph.NodeTypeIdentity]; !ok {
		graph.VJPRegistration[graph.NodeTypeIdentity] = identityGradient
	}
	for kind, gradient := range graph.VJPRegistration {
		if kind == graph.NodeTypeIdentity {
			continue // an op of a trace, see emit
		}
		graph.VJPRegistration[kind] = func(node *graph.Node, adjoints []*graph.Node, shape shapes.Shape) []*graph.Node {
			reportGradient(node, true)
			defer reportGradient(node, false) // ops that sum the returned gradients follow
			return gradient(node, adjoints, shape)
		}
	}
}

func reportGradient(node *graph.Node, gomlx bool) {
	for _, v := range graph.InternalBackendOutputs(node) {
		lowering.BeginGradient(v, gomlx)
	}
}

func identityGradient(node *graph.Node, adjoints []*graph.Node, _ shapes.Shape) []*graph.Node {
	if t, ok := node.Graph().Backend().(*Trace); ok {
		if gradient, ok := t.gradients[node]; ok {
			if gradient == nil { // no gradient flows
				return []*graph.Node{nil}
			}
			return []*graph.Node{gradient(adjoints[0])}
		}
	}
	panic(newFault(node.String(), "its gradient is unknown: GoMLX loses it if Checkpoint is called on an identity op "+
		"with a custom gradient or without a gradient",
		"call Checkpoint on another node, or use remat.Block"))
}
