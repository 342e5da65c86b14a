package region

import "github.com/gomlx/gomlx/core/graph"

// statesWithoutGradient finds the states of a loop that receive no gradient, such as a sum over
// layers for logging. The code outside does not read the last value of such a state, and no other
// result depends on the state. The state's adjoint is zero in all iterations, so the backward pass
// omits it. The returned map contains the argument inside the loop for the result index of each
// such state.
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

// addDependencies adds node to seen, and all nodes of the region to which the gradient of node
// flows.
func (r *tracer) addDependencies(node *graph.Node, seen map[*graph.Node]bool) {
	if seen[node] || node.StopGradient() || node.Id() < r.innerArguments[0].Id() {
		return
	}
	seen[node] = true
	for _, in := range node.Inputs() {
		r.addDependencies(in, seen)
	}
}
