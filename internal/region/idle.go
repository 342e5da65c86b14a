package region

import "github.com/gomlx/gomlx/core/graph"

// idle finds the states of a loop that no gradient comes to: nothing outside reads their last
// value, and no result but they themselves is made of them. Such are sums that the layers add to,
// for people to read. Their adjoints are zeros in all runs, and the backward pass is made without them.
// It returns the arguments inside by the numbers of their results.
func (r *tracer) idle() map[int]*graph.Node {
	all := map[int]*graph.Node{}
	for i, y := range r.results {
		if _, ok := y.Crossing.(Carry); ok && y.Node.DType().IsFloat() && r.adjoints[i] == nil {
			all[i] = r.enters[r.before[i]]
		}
	}
	for again := len(all) > 0; again; {
		again = false
		seen := map[*graph.Node]bool{}
		for i, y := range r.results {
			if all[i] == nil {
				r.reach(y.Node, seen)
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

// reach adds to seen what a value is made of with a gradient.
func (r *tracer) reach(node *graph.Node, seen map[*graph.Node]bool) {
	if seen[node] || node.StopGradient() || node.Id() < r.enters[0].Id() {
		return
	}
	seen[node] = true
	for _, in := range node.Inputs() {
		r.reach(in, seen)
	}
}
