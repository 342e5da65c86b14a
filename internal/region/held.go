package region

import "github.com/gomlx/gomlx/core/graph"

// StepVariable is a variable whose value is a node in the step, and which the step may write.
type StepVariable interface {
	// Name is the name of the variable in errors and arguments.
	Name() string
	// Parameter is the value at the start of the step. Now is the value at this point of the trace.
	Parameter() *graph.Node
	Now() *graph.Node
	// Set sets the current value to x.
	Set(x *graph.Node)
}

type heldKey struct{}

// SetHeld sets the function that lists the variables of a graph, in the order in which the step
// first used them.
func SetHeld(g *graph.Graph, list func() []StepVariable) { g.AttachState(heldKey{}, list) }

// Writes records the variables that are written while a region is traced.
type Writes struct {
	list            func() []StepVariable
	outside, inside map[StepVariable]*graph.Node
}

// Watch starts to record the writes of a region, before the region is traced. The value of a
// variable that was written before becomes a [Leaf], so that the region may read it.
func Watch(target Target, g *graph.Graph) *Writes {
	w := &Writes{outside: map[StepVariable]*graph.Node{}, inside: map[StepVariable]*graph.Node{}}
	w.list, _ = g.State(heldKey{}).(func() []StepVariable)
	for _, h := range w.all() {
		if x := h.Now(); g.IsMainFunc() && x != h.Parameter() && !leavesOf(g).nodes[x] {
			h.Set(Leaf(target, x))
		}
		w.outside[h], w.inside[h] = h.Now(), h.Now()
	}
	return w
}

func (w *Writes) all() []StepVariable {
	if w.list == nil {
		return nil
	}
	return w.list()
}

// Outside returns a variable's value before the region.
func (w *Writes) Outside(h StepVariable) *graph.Node { return or(w.outside, h) }

// or returns of[h], or the parameter of a variable that the region used first.
func or(of map[StepVariable]*graph.Node, h StepVariable) *graph.Node {
	if x := of[h]; x != nil {
		return x
	}
	return h.Parameter()
}

// Begin sets the value of a variable at the start of the region.
func (w *Writes) Begin(h StepVariable, x *graph.Node) {
	w.inside[h] = x
	h.Set(x)
}

// Written returns the variables whose value differs from the value at the start of the region.
func (w *Writes) Written() (all []StepVariable) {
	for _, h := range w.all() {
		if h.Now() != or(w.inside, h) {
			all = append(all, h)
		}
	}
	return all
}

// Restore resets all variables to their values before the region.
func (w *Writes) Restore() {
	for _, h := range w.all() {
		if x := w.Outside(h); h.Now() != x {
			h.Set(x)
		}
	}
}
