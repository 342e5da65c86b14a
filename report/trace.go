package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/cost"
)

// The rows of a trace.
const (
	traceCore = 1 + iota
	traceInterconnect
	traceNetwork
	traceTransfers
)

// traceRows are the rows of transfers, see [cost.Transfer].On.
var traceRows = map[string]int{"interconnect": traceInterconnect, "network": traceNetwork, "transfers": traceTransfers}

// traceEvent is an event of Chrome's trace format, with times in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Start float64        `json:"ts"`
	Took  float64        `json:"dur,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// The limits of a trace. If the loops of a step have more operations, only their first iterations
// are shown.
const maxEvents, fewIterations = 200_000, 3

// WriteTrace writes the predicted run of the step on one core as a trace in Chrome's JSON format,
// for Perfetto and chrome://tracing: the operations of the core, loops iteration by iteration,
// asynchronous transfers, and the memory in use. Its times are predictions, not measurements. If no
// times are predicted, the error matches errors.ErrUnsupported.
func (r *Report) WriteTrace(w io.Writer) error {
	if r.Schedule == nil || r.Predicted == nil {
		return &errkind.Fault{Op: "report: trace", Subject: r.Step + " on " + r.Target.Name,
			Reason: "it has no predicted times",
			Hint:   "compile it for a slice of TPUs that it fits", Match: errors.ErrUnsupported}
	}
	t := &tracer{w: bufio.NewWriter(w), report: r, rounds: 1 << 30}
	if t.countUnrolled(r.Schedule.Operations) > maxEvents {
		t.rounds = fewIterations
	}
	fmt.Fprintf(t.w, `{"displayTimeUnit":"ns","otherData":{"note":"predicted, not measured"},"traceEvents":[`)
	t.name("process_name", 0, fmt.Sprintf("%s on %s, predicted", r.Step, r.Target.Name))
	for row, name := range []string{traceCore: "core", traceInterconnect: "interconnect", traceNetwork: "network",
		traceTransfers: "memory transfers"} {
		if name != "" {
			t.name("thread_name", row, name)
		}
	}
	t.writeOperations(r.Schedule.Operations, 0)
	fmt.Fprint(t.w, "]}\n")
	if err := t.w.Flush(); err != nil {
		return &errkind.Fault{Op: "report: write the trace", Err: err}
	}
	return nil
}

// tracer writes trace events. Errors are kept by its bufio.Writer until the end.
type tracer struct {
	w      *bufio.Writer
	report *Report
	rounds int // maximum iterations of a loop
	events int
}

func (t *tracer) write(e traceEvent) {
	if t.events++; t.events > 1 {
		_, _ = t.w.WriteString(",\n")
	}
	e.PID = 1
	line, err := json.Marshal(e)
	if err != nil { // numbers that JSON does not support
		line = []byte(`{"name":"not a number","ph":"M","pid":1}`)
	}
	_, _ = t.w.Write(line)
}

func (t *tracer) name(what string, row int, name string) {
	t.write(traceEvent{Name: what, Phase: "M", TID: row, Args: map[string]any{"name": name}})
}

func (t *tracer) countUnrolled(all []cost.Operation) (n int) {
	for _, o := range all {
		n++
		if inside := t.countUnrolled(o.Inside); inside > 0 {
			n = min(product64(inside+1, max(o.Iterations, 1))+n, maxCount)
		}
	}
	return n
}

func (t *tracer) writeOperations(all []cost.Operation, from float64) {
	for _, o := range all {
		if t.events > 2*maxEvents { // of a malformed report with nested loops
			return
		}
		start := from + o.Start
		t.write(traceEvent{Name: "memory in use", Phase: "C", Start: 1e6 * start, Args: map[string]any{"bytes": o.InUse}})
		if o.Beside != nil {
			t.write(traceEvent{Name: label(o), Phase: "X", TID: traceRows[o.Beside.On], Start: 1e6 * (from + o.Beside.Start),
				Took: 1e6 * o.Beside.Seconds, Args: t.args(o)})
		}
		if o.Seconds() > 0 {
			t.write(traceEvent{Name: label(o), Phase: "X", TID: traceCore, Start: 1e6 * start, Took: 1e6 * o.Seconds(),
				Args: t.args(o)})
		}
		if len(o.Inside) == 0 {
			continue
		}
		round := o.Seconds() / float64(max(o.Iterations, 1))
		for k := range min(max(o.Iterations, 1), t.rounds) {
			at := start + float64(k)*round
			if o.Iterations > 1 && round > 0 {
				t.write(traceEvent{Name: fmt.Sprintf("round %d of %d", k+1, o.Iterations), Phase: "X", TID: traceCore,
					Start: 1e6 * at, Took: 1e6 * round})
			}
			t.writeOperations(o.Inside, at)
		}
	}
}

func label(o cost.Operation) string {
	switch {
	case o.Joined > 0:
		return fmt.Sprintf("%d operations", o.Joined)
	case o.Iterations > 0:
		return fmt.Sprintf("%s, %d rounds", o.Name, o.Iterations)
	}
	return o.Name
}

func (t *tracer) args(o cost.Operation) map[string]any {
	args := map[string]any{}
	for name, text := range map[string]string{"operation": o.Operation, "source": o.Source, "layer": o.Layer,
		"line": t.report.line(o.Line)} {
		if text != "" {
			args[name] = text
		}
	}
	return args
}
