package region

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// captureState contains the nodes of a graph that regions may read although they are not arguments.
// A region returns a gradient for each of these nodes that it reads.
type captureState struct {
	allowed map[*graph.Node]bool
	// differentiating is the region whose gradient is being computed, or nil.
	differentiating *tracer
}

type captureStateKey struct{}

func captureStateOf(g *graph.Graph) *captureState {
	l, ok := g.State(captureStateKey{}).(*captureState)
	if !ok {
		l = &captureState{allowed: map[*graph.Node]bool{}}
		g.AttachState(captureStateKey{}, l)
	}
	return l
}

// AllowCapture returns a copy of x that later regions may read like a parameter, without an
// argument. It is for values that represent a variable, such as a slice of the variable in another
// dtype or the variable gathered from shards.
func AllowCapture(target Target, x *graph.Node) *graph.Node {
	l := captureStateOf(x.Graph())
	var leaf *graph.Node
	leaf = target.EmitOp(x, CheckpointName{}, func(v *graph.Node) *graph.Node {
		if l.differentiating != nil && slices.Contains(l.differentiating.innerSources, leaf) {
			return nil // the gradient of the region continues outside
		}
		return v
	})
	l.allowed[leaf] = true
	return leaf
}
