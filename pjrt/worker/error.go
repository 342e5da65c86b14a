package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Reason is the reason why a worker returned no result.
type Reason int

const (
	// NotStarted means that the worker could not be started.
	NotStarted Reason = iota + 1
	// Died means that the worker exited without a result, because its compiler crashed or was killed.
	Died
	// TimedOut means that the worker was stopped after [Options].Timeout.
	TimedOut
)

// String returns the reason as a short phrase.
func (r Reason) String() string {
	return enum.Name(r, "", "the worker could not be started", "the compiler's process died",
		"the compiler took too long")
}

// Error reports that a worker returned no result. If Reason is TimedOut, it matches
// context.DeadlineExceeded.
type Error struct {
	// Reason is the class of the problem.
	Reason Reason
	// State is how the worker exited, such as "signal: SIGABRT: abort", or why it was not started.
	State string
	// Killed is true if another process or the kernel killed the worker, for example because memory
	// ran out.
	Killed bool
	// StderrTail is the end of the worker's output.
	StderrTail string
	// Hint suggests a correction. It may be empty.
	Hint string
	// Err is the cause, or nil.
	Err error
}

// Error returns "worker: reason: state: cause; hint", followed by the last lines of the worker's
// standard error.
func (e *Error) Error() string {
	reason := e.Reason.String()
	if e.State != "" {
		reason += ": " + e.State
	}
	if e.Killed {
		reason += " (killed by another process or by the kernel, which happens when memory runs out)"
	}
	text := errkind.Format("worker", reason, e.Err, e.Hint)
	if e.StderrTail != "" {
		text += "\nend of its output:\n" + e.StderrTail
	}
	return text
}

// Kind returns UnavailableError for NotStarted, DeadlineExceededError for TimedOut,
// ResourceExhaustedError if the worker was killed, and InternalError otherwise.
func (e *Error) Kind() errkind.Kind {
	switch {
	case e.Reason == NotStarted:
		return errkind.UnavailableError
	case e.Reason == TimedOut:
		return errkind.DeadlineExceededError
	case e.Killed:
		return errkind.ResourceExhaustedError
	}
	return errkind.InternalError
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is context.DeadlineExceeded and the reason is TimedOut.
func (e *Error) Is(target error) bool {
	return e.Reason == TimedOut && target == context.DeadlineExceeded
}

var errTimeout = errors.New("the timeout has elapsed")

// newError converts an error of child.Run to an Error. It returns the error of ctx if the caller's
// context has ended. timeout is Options.Timeout.
func newError(ctx context.Context, timeout time.Duration, err error) error {
	var died *child.Error
	switch {
	case errors.Is(err, child.ErrStart):
		return &Error{Reason: NotStarted, Err: err, Hint: "check Options.Command"}
	case errors.As(err, &died):
		e := &Error{Reason: Died, State: died.State, Killed: died.Killed(), StderrTail: died.OutputTail}
		if e.Killed {
			e.Hint = "reduce Options.MaxWorkers, or use a machine with more memory"
		}
		return e
	case ctx.Err() == nil && errors.Is(err, errTimeout):
		return &Error{Reason: TimedOut, State: fmt.Sprintf("it was stopped after %v", timeout),
			StderrTail: child.OutputTail(err),
			Hint:       "increase Options.Timeout"}
	}
	return opError("compile", err)
}

func opError(op string, cause error) error { return &errkind.Fault{Op: "worker: " + op, Err: cause} }
