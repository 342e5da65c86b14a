package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
)

// The steps of a start-up, as a [StartError] and the log name them.
const (
	StepResolve     = "resolve cluster"
	StepEnvironment = "check environment"
	StepFind        = "find plugin"
	StepOpen        = "open plugin"
	StepClient      = "create client"
	StepTopology    = "read topology"
	StepDevices     = "check devices"
)

// Process is another process of the cluster.
type Process struct {
	// Task is the process's place in the cluster.
	Task clusterresolver.Task
	// Address is where the process would listen, if that is known.
	Address string
	// Err says why the process is taken to be missing.
	Err error
}

// String returns a text such as "/job:worker/task:2 (10.164.0.4:8471): connection refused".
func (p Process) String() string {
	text := p.Task.String()
	if p.Address != "" {
		text += " (" + p.Address + ")"
	}
	if p.Err != nil {
		text += ": " + p.Err.Error()
	}
	return text
}

// StartError reports which step of a start-up failed.
type StartError struct {
	// Step is the step that failed, such as [StepClient].
	Step string
	// Elapsed is the time since the step began.
	Elapsed time.Duration
	// Missing are the processes that did not answer, where the step waited for them. It is empty
	// where none of them takes a connection, which says nothing, since a firewall may be between
	// them; Hint says so.
	Missing []Process
	// Hint says what to do, if that is known.
	Hint string
	// Err is the cause.
	Err error
}

// Error returns the step, the cause, the processes that are missing and what to do.
func (e *StartError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "system: %s: %v", e.Step, e.Err)
	if errors.Is(e.Err, context.DeadlineExceeded) {
		fmt.Fprintf(&b, " (the step took %v)", e.Elapsed.Round(time.Millisecond))
	}
	for i, h := range e.Missing {
		if i == 0 {
			b.WriteString("; missing: ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(h.String())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Kind returns UnavailableError where other processes are missing, unless the start was canceled,
// and otherwise the kind of the cause, or RuntimeError.
func (e *StartError) Kind() errkind.Kind {
	kind := errkind.Or(e.Err, errkind.RuntimeError)
	if len(e.Missing) > 0 && kind != errkind.CancelledError {
		return errkind.UnavailableError
	}
	return kind
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// starter takes the steps of a start-up.
type starter struct {
	opts    Options
	logger  *slog.Logger
	cluster *clusterresolver.Cluster // nil if nothing is known of one
}
