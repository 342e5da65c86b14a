package region

import "github.com/gomlx/gomlx/core/graph"

type frozenKey struct{}

// SetFrozen sets a function that reports whether a parameter of the graph has no gradient. Regions
// compute no gradients for such parameters and for values that depend only on them.
func SetFrozen(g *graph.Graph, frozen func(parameter string) bool) {
	g.AttachState(frozenKey{}, frozen)
}

func frozenOf(g *graph.Graph) func(parameter string) bool {
	frozen, _ := g.State(frozenKey{}).(func(parameter string) bool)
	return frozen
}

func isFrozenParameter(node *graph.Node) bool {
	frozen := frozenOf(node.Graph())
	return frozen != nil && frozen(node.GetParameterName())
}
