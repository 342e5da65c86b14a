package region

import "github.com/gomlx/gomlx/core/graph"

// StepVariable is a variable whose value a step holds in a node, and which the step may write.
type StepVariable interface {
	// Name is how errors and arguments name the variable.
	Name() string
	// Parameter is the value that the step began with, and Now the value at this point of the trace.
	Parameter() *graph.Node
	Now() *graph.Node
	// Set makes x the value now.
	Set(x *graph.Node)
}

type heldKey struct{}

// SetHeld sets what lists the variables that a graph holds, in the order in which the step met
// them.
func SetHeld(g *graph.Graph, list func() []StepVariable) { g.AttachState(heldKey{}, list) }

// Writes follows which held variables are written while a region is traced.
type Writes struct {
	list            func() []StepVariable
	outside, inside map[StepVariable]*graph.Node
}

// Watch begins to follow the writes of a region that is about to be traced. A variable that was
// written before is a [Leaf] from here on: the region may read it.
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

// Outside is a variable's value before the region.
func (w *Writes) Outside(h StepVariable) *graph.Node { return or(w.outside, h) }

// or is the parameter of a variable that the region was the first to meet.
func or(of map[StepVariable]*graph.Node, h StepVariable) *graph.Node {
	if x := of[h]; x != nil {
		return x
	}
	return h.Parameter()
}

// Begin gives a variable the value with which it enters the region.
func (w *Writes) Begin(h StepVariable, x *graph.Node) {
	w.inside[h] = x
	h.Set(x)
}

// Written are the variables that have another value than they entered with.
func (w *Writes) Written() (all []StepVariable) {
	for _, h := range w.all() {
		if h.Now() != or(w.inside, h) {
			all = append(all, h)
		}
	}
	return all
}

// Restore gives all variables the values that they had before the region.
func (w *Writes) Restore() {
	for _, h := range w.all() {
		if x := w.Outside(h); h.Now() != x {
			h.Set(x)
		}
	}
}
