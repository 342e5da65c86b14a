package region

import "github.com/gomlx/gomlx/core/graph"

type frozenKey struct{}

// SetFrozen says which parameters of a graph have no gradients, by their names: regions make none
// for them, nor for what is made of them and of other values without gradients.
func SetFrozen(g *graph.Graph, frozen func(parameter string) bool) {
	g.AttachState(frozenKey{}, frozen)
}

// frozenOf is what SetFrozen was given, or nil.
func frozenOf(g *graph.Graph) func(parameter string) bool {
	frozen, _ := g.State(frozenKey{}).(func(parameter string) bool)
	return frozen
}

// frozenParameter reports whether a parameter has no gradient.
func frozenParameter(node *graph.Node) bool {
	frozen := frozenOf(node.Graph())
	return frozen != nil && frozen(node.GetParameterName())
}
