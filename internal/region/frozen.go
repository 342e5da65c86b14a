package region

import "github.com/gomlx/gomlx/core/graph"

type frozenKey struct{}

// SetFrozen sets the parameters of a graph without gradients, by name. Regions compute no gradients
// for them, nor for values that depend only on them and on other values without gradients.
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
