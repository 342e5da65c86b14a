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

// The steps of [Open], as used in [StartError] and in the log.
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
	// Task is the job and index of the process.
	Task clusterresolver.Task
	// Address is the address at which the process listens, or "" if it is unknown.
	Address string
	// Err is the reason why the process is considered missing.
	Err error
}

// String describes the process, as in "/job:worker/task:2 (10.164.0.4:8471): connection refused".
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

// StartError reports the step of [Open] that failed.
type StartError struct {
	// Step is the failed step, such as [StepClient].
	Step string
	// Elapsed is the duration of the step.
	Elapsed time.Duration
	// Missing lists the processes that did not respond, if the step waits for other processes. It
	// is empty if no process accepts connections, because a firewall may block them; Hint describes
	// this case.
	Missing []Process
	// Hint is the correction, or "".
	Hint string
	// Err is the cause.
	Err error
}

// Error returns a message with the step, the cause, the missing processes and the correction.
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

// Kind returns UnavailableError if processes are missing, unless the start was canceled. Otherwise
// it returns the kind of the cause, or RuntimeError if the cause has no kind.
func (e *StartError) Kind() errkind.Kind {
	kind := errkind.KindOr(e.Err, errkind.RuntimeError)
	if len(e.Missing) > 0 && kind != errkind.CancelledError {
		return errkind.UnavailableError
	}
	return kind
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// starter contains the options of [Open] and the cluster that Open has resolved.
type starter struct {
	opts    Options
	logger  *slog.Logger
	cluster *clusterresolver.Cluster // nil without a cluster or resolver
}
