package precision

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// A layer requests its variables in the dtype of its input, so the dtype of each variable is known
// only after the model's code has run. Therefore a forward part is traced twice: the first trace
// records the requested dtypes, and the second trace builds the graph.

// TraceState contains information that repeated traces of a step collect about the step's calls of
// [Policy.Forward]. The code that traces a step must attach it to each graph, and must trace the
// step again with a new graph while [TraceState.NeedsRetrace] returns true. Package strategy does
// this for all functions. The zero TraceState is ready to use. It is not safe for concurrent use.
type TraceState struct {
	forwardCalls []*forwardCall // one for each call of Forward in a graph, in order
	retrace      bool
}

type forwardCall struct {
	// dtypes are the dtypes in which the call reads the variables, by path. They are set once known
	// is true.
	known  bool
	dtypes map[string]dtypes.DType
	// visible contains the variables that the model looks up before a layer requests them.
	visible map[string]bool
}

type graphState struct {
	tracing *TraceState
	calls   int // number of calls of Forward
	// policy is the policy of the last call of Forward, and inForward is true during the call.
	// originals maps cast arguments to the original arguments.
	policy    Policy
	inForward bool
	originals map[*graph.Node]*graph.Node
}

type graphStateKey struct{}

// Attach adds the state to a new graph of the step.
func (t *TraceState) Attach(g *graph.Graph) {
	g.AttachState(graphStateKey{}, &graphState{tracing: t, originals: map[*graph.Node]*graph.Node{}})
}

func graphStateOf(g *graph.Graph) *graphState {
	t, _ := g.State(graphStateKey{}).(*graphState)
	return t
}

func (t *graphState) nextCall() *forwardCall {
	if t.calls == len(t.tracing.forwardCalls) {
		t.tracing.forwardCalls = append(t.tracing.forwardCalls, &forwardCall{visible: map[string]bool{}})
	}
	t.calls++
	return t.tracing.forwardCalls[t.calls-1]
}

// errRetrace stops a trace that has only recorded the requested dtypes.
var errRetrace = errkind.New(errkind.InternalError,
	"precision: the dtypes of the variables are known; the step must be traced again")

// NeedsRetrace reports whether the last trace only recorded the requested dtypes, and clears this
// state. If it returns true, the step must be traced again, and the result or error of the last
// trace is meaningless.
func (t *TraceState) NeedsRetrace() bool {
	again := t.retrace
	t.retrace = false
	return again
}

// SaveCallCount saves the number of calls of [Policy.Forward] in the graph. rewind resets the count
// to this number, before code that abandoned part of a trace traces this part again.
func SaveCallCount(g *graph.Graph) (rewind func()) {
	t := graphStateOf(g)
	if t == nil {
		return func() {}
	}
	calls := t.calls
	return func() { t.calls = calls }
}
