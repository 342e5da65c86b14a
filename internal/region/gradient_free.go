package region

import "github.com/gomlx/gomlx/core/graph"

// statesWithoutGradient finds the loop states that receive no gradient: the code outside does not
// read their last value, and no other result depends on them. An example is a sum over layers for
// logging. Their adjoints are zero in all iterations, and the backward pass omits them. The map
// contains the inner argument for the index of each such result.
func (r *tracer) statesWithoutGradient() map[int]*graph.Node {
	all := map[int]*graph.Node{}
	for i, y := range r.results {
		if _, ok := y.Mapping.(Carry); ok && y.Node.DType().IsFloat() && r.adjoints[i] == nil {
			all[i] = r.innerArguments[r.carriedFrom[i]]
		}
	}
	for again := len(all) > 0; again; {
		again = false
		seen := map[*graph.Node]bool{}
		for i, y := range r.results {
			if all[i] == nil {
				r.addDependencies(y.Node, seen)
			}
		}
		for i, enter := range all {
			if seen[enter] {
				delete(all, i)
				again = true
			}
		}
	}
	return all
}

// addDependencies adds to seen the nodes that a value depends on with a gradient.
func (r *tracer) addDependencies(node *graph.Node, seen map[*graph.Node]bool) {
	if seen[node] || node.StopGradient() || node.Id() < r.innerArguments[0].Id() {
		return
	}
	seen[node] = true
	for _, in := range node.Inputs() {
		r.addDependencies(in, seen)
	}
}
