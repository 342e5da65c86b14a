package region

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// leaves are the nodes of a graph that regions may read without an argument. The gradient of a
// region ends at them and continues outside.
type leaves struct {
	nodes map[*graph.Node]bool
	// of is the region whose gradient is being computed, or nil.
	of *tracer
}

type leavesKey struct{}

func leavesOf(g *graph.Graph) *leaves {
	l, ok := g.State(leavesKey{}).(*leaves)
	if !ok {
		l = &leaves{nodes: map[*graph.Node]bool{}}
		g.AttachState(leavesKey{}, l)
	}
	return l
}

// Leaf returns x as a node that later regions may read like a parameter, without an argument. It is
// for values that represent a variable: a variable's slice in another dtype, or gathered from
// shards.
func Leaf(target Target, x *graph.Node) *graph.Node {
	l := leavesOf(x.Graph())
	var leaf *graph.Node
	leaf = target.EmitBorder(x, Name{}, func(v *graph.Node) *graph.Node {
		if l.of != nil && slices.Contains(l.of.leaves, leaf) {
			return nil // the gradient of the region continues outside
		}
		return v
	})
	l.nodes[leaf] = true
	return leaf
}
