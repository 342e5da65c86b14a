package region

import "github.com/gomlx/gomlx/core/graph"

// StepVariable is a variable that a step can read and write while it is traced.
type StepVariable interface {
	// Name is the name of the variable in errors and arguments.
	Name() string
	// InitialValue is the value at the start of the step. Value is the value at this point of the
	// trace.
	InitialValue() *graph.Node
	Value() *graph.Node
	// SetValue sets the current value to x.
	SetValue(x *graph.Node)
}

type variablesKey struct{}

// SetVariables sets the function that lists the variables of a graph, in the order in which the
// step first used them.
func SetVariables(g *graph.Graph, list func() []StepVariable) { g.AttachState(variablesKey{}, list) }

// WriteRecorder records the variables that are written while a region is traced.
type WriteRecorder struct {
	listVariables func() []StepVariable
	before, start map[StepVariable]*graph.Node
}

// RecordWrites starts to record which variables a region writes. It must be called before the
// region is traced. The region may read the values of variables that were written before, because
// RecordWrites passes these values to [AllowCapture].
func RecordWrites(target Target, g *graph.Graph) *WriteRecorder {
	w := &WriteRecorder{before: map[StepVariable]*graph.Node{}, start: map[StepVariable]*graph.Node{}}
	w.listVariables, _ = g.State(variablesKey{}).(func() []StepVariable)
	for _, v := range w.variables() {
		if x := v.Value(); g.IsMainFunc() && x != v.InitialValue() && !captureStateOf(g).allowed[x] {
			v.SetValue(AllowCapture(target, x))
		}
		w.before[v], w.start[v] = v.Value(), v.Value()
	}
	return w
}

func (w *WriteRecorder) variables() []StepVariable {
	if w.listVariables == nil {
		return nil
	}
	return w.listVariables()
}

// ValueBefore returns the value that a variable had before the region.
func (w *WriteRecorder) ValueBefore(v StepVariable) *graph.Node { return valueOrInitial(w.before, v) }

// valueOrInitial returns values[v], or the initial value of v if the map has no entry for v.
func valueOrInitial(values map[StepVariable]*graph.Node, v StepVariable) *graph.Node {
	if x := values[v]; x != nil {
		return x
	}
	return v.InitialValue()
}

// SetStart sets the value of a variable at the start of the region.
func (w *WriteRecorder) SetStart(v StepVariable, x *graph.Node) {
	w.start[v] = x
	v.SetValue(x)
}

// Written returns the variables that the region has written: their value differs from the value at
// the start of the region.
func (w *WriteRecorder) Written() (all []StepVariable) {
	for _, v := range w.variables() {
		if v.Value() != valueOrInitial(w.start, v) {
			all = append(all, v)
		}
	}
	return all
}

// Restore resets all variables to the values that they had before the region.
func (w *WriteRecorder) Restore() {
	for _, v := range w.variables() {
		if x := w.ValueBefore(v); v.Value() != x {
			v.SetValue(x)
		}
	}
}
