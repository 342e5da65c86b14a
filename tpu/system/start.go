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

// Host is another process of the cluster.
type Host struct {
	// Task is the process's place in the cluster.
	Task clusterresolver.Task
	// Address is where the process would listen, if that is known.
	Address string
	// Err says why the process is taken to be missing.
	Err error
}

// String returns a text such as "/job:worker/task:2 (10.164.0.4:8471): connection refused".
func (h Host) String() string {
	text := h.Task.String()
	if h.Address != "" {
		text += " (" + h.Address + ")"
	}
	if h.Err != nil {
		text += ": " + h.Err.Error()
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
	Missing []Host
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

// Kind returns the kind of the cause, or RuntimeError.
func (e *StartError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.RuntimeError) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// starter takes the steps of a start-up.
type starter struct {
	opts    Options
	logger  *slog.Logger
	cluster *clusterresolver.Cluster // nil if nothing is known of one
}

// step runs one step, logs it and names it in its error. A step that C code holds up is left behind
// when ctx ends: drop gets what it then makes.
func step[T any](ctx context.Context, s *starter, name string, drop func(T), f func(context.Context) (T, []any, error)) (T, error) {
	start := time.Now()
	type outcome struct {
		value T
		notes []any // for the log
		err   error
	}
	var o outcome
	if err := ctx.Err(); err != nil {
		o.err = context.Cause(ctx)
	} else if ctx.Done() == nil {
		o.value, o.notes, o.err = f(ctx)
	} else {
		done := make(chan outcome, 1)
		go func() {
			value, notes, err := f(ctx)
			done <- outcome{value, notes, err}
		}()
		select {
		case o = <-done:
		case <-ctx.Done():
			// A call that looks at ctx ends now; prefer what it has to say.
			wait := time.NewTimer(grace)
			defer wait.Stop()
			select {
			case o = <-done:
			case <-wait.C:
				o.err = context.Cause(ctx)
				go func() {
					if late := <-done; late.err == nil && drop != nil {
						drop(late.value)
					}
				}()
			}
		}
	}
	elapsed := time.Since(start)
	if o.err != nil {
		s.logger.Error("system: "+name, "elapsed", elapsed, "error", o.err)
		return o.value, s.explain(ctx, &StartError{Step: name, Elapsed: elapsed, Err: o.err})
	}
	s.logger.Info("system: "+name, append(o.notes, "elapsed", elapsed)...)
	return o.value, nil
}

// grace is how long a step is given to end by itself once its context has.
const grace = 100 * time.Millisecond

// explain adds what is known to an error: who is missing, who holds the TPU.
func (s *starter) explain(ctx context.Context, e *StartError) error {
	var known interface{ MissingProcesses() []int }
	switch {
	case errors.As(e.Err, &known):
		for _, i := range known.MissingProcesses() {
			e.Missing = append(e.Missing, s.host(i))
		}
	case e.Step == StepClient && ctx.Err() != nil && s.others() > 0:
		r := s.reach(context.WithoutCancel(ctx))
		e.Missing, e.Hint = r.missing, r.hint()
		e.Hint = strings.TrimPrefix(e.Hint+"; start the same program on every host of the slice, about the same time", "; ")
	}
	if e.Step == StepOpen || e.Step == StepClient {
		if locked := explainLock(e.Err, thisHost()); locked != nil {
			e.Err = locked
		}
	}
	return e
}
