package precision

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Layers make their variables in the dtype of what they are given, so which variables are seen in
// which dtype is known when the model's code has run. Until then the graph has parameters of the
// wrong dtype. So the code of a forward part runs twice: in the first trace to see what it asks the
// store for, in the second for the graph.

// TraceState is what the traces of one step know of its forward parts. What traces a step attaches
// it to each graph, and traces the step once more with a new graph whenever [TraceState.Again] says
// so. Package strategy does that for all its functions. The zero TraceState is ready to use. It is
// not safe for concurrent use.
type TraceState struct {
	parts []*part // in the order of the calls of Forward in a graph
	again bool
}

// part is what is known of one call of Forward.
type part struct {
	// known is set once dtypes is. dtypes are those in which the part sees the variables.
	known  bool
	dtypes map[string]dtypes.DType
	// looked are variables that the part looks up before any layer asks for them.
	looked map[string]bool
}

// graphState is what a graph knows.
type graphState struct {
	tracing *TraceState
	calls   int // of Forward
	// policy is that of the last call, running is set during one. exact are the arguments that
	// nodes were cast from.
	policy  Policy
	running bool
	exact   map[*graph.Node]*graph.Node
}

type tracedKey struct{}

// Attach makes a new graph one of the step's traces.
func (t *TraceState) Attach(g *graph.Graph) {
	g.AttachState(tracedKey{}, &graphState{tracing: t, exact: map[*graph.Node]*graph.Node{}})
}

func tracedOf(g *graph.Graph) *graphState {
	t, _ := g.State(tracedKey{}).(*graphState)
	return t
}

// next is the part that a call of Forward in the graph is.
func (t *graphState) next() *part {
	if t.calls == len(t.tracing.parts) {
		t.tracing.parts = append(t.tracing.parts, &part{looked: map[string]bool{}})
	}
	t.calls++
	return t.tracing.parts[t.calls-1]
}

// errAgain ends a trace that has seen what it was to see.
var errAgain = errkind.New(errkind.InternalError, "precision: the dtypes of the variables are known now, and the step is to be traced again")

// Again reports whether the last trace served to see what the step's code asks for: the step is to
// be traced again, whatever came of it.
func (t *TraceState) Again() bool {
	again := t.again
	t.again = false
	return again
}

// Mark returns a function that makes the calls of [Policy.Forward] in the graph since Mark as if
// they had never been: for code that gives up the trace of a part of a step and traces it again.
func Mark(g *graph.Graph) (rewind func()) {
	t := tracedOf(g)
	if t == nil {
		return func() {}
	}
	calls := t.calls
	return func() { t.calls = calls }
}
