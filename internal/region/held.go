package region

import "github.com/gomlx/gomlx/core/graph"

// StepVariable is a variable whose value is a node in the step, and which the step may write.
type StepVariable interface {
	// CheckpointName is the name of the variable in errors and arguments.
	Name() string
	// InitialValue is the value at the start of the step. Now is the value at this point of the trace.
	InitialValue() *graph.Node
	Value() *graph.Node
	// SetValue sets the current value to x.
	SetValue(x *graph.Node)
}

type variablesKey struct{}

// SetVariables sets the function that lists the variables of a graph, in the order in which the step
// first used them.
func SetVariables(g *graph.Graph, list func() []StepVariable) { g.AttachState(variablesKey{}, list) }

// WriteRecorder records the variables that are written while a region is traced.
type WriteRecorder struct {
	listVariables func() []StepVariable
	before, start map[StepVariable]*graph.Node
}

// RecordWrites starts to record the writes of a region, before the region is traced. The value of a
// variable that was written before becomes a [AllowCapture], so that the region may read it.
func RecordWrites(target Target, g *graph.Graph) *WriteRecorder {
	w := &WriteRecorder{before: map[StepVariable]*graph.Node{}, start: map[StepVariable]*graph.Node{}}
	w.listVariables, _ = g.State(variablesKey{}).(func() []StepVariable)
	for _, h := range w.variables() {
		if x := h.Value(); g.IsMainFunc() && x != h.InitialValue() && !captureStateOf(g).allowed[x] {
			h.SetValue(AllowCapture(target, x))
		}
		w.before[h], w.start[h] = h.Value(), h.Value()
	}
	return w
}

func (w *WriteRecorder) variables() []StepVariable {
	if w.listVariables == nil {
		return nil
	}
	return w.listVariables()
}

// OuterShape returns a variable's value before the region.
func (w *WriteRecorder) ValueBefore(h StepVariable) *graph.Node { return valueOrInitial(w.before, h) }

// valueOrInitial returns of[h], or the parameter of a variable that the region used first.
func valueOrInitial(of map[StepVariable]*graph.Node, h StepVariable) *graph.Node {
	if x := of[h]; x != nil {
		return x
	}
	return h.InitialValue()
}

// SetStart sets the value of a variable at the start of the region.
func (w *WriteRecorder) SetStart(h StepVariable, x *graph.Node) {
	w.start[h] = x
	h.SetValue(x)
}

// Written returns the variables whose value differs from the value at the start of the region.
func (w *WriteRecorder) Written() (all []StepVariable) {
	for _, h := range w.variables() {
		if h.Value() != valueOrInitial(w.start, h) {
			all = append(all, h)
		}
	}
	return all
}

// Restore resets all variables to their values before the region.
func (w *WriteRecorder) Restore() {
	for _, h := range w.variables() {
		if x := w.ValueBefore(h); h.Value() != x {
			h.SetValue(x)
		}
	}
}
