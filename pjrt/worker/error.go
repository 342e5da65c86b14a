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

// Reason says why a worker gave no answer.
type Reason int

const (
	// NotStarted says that the worker could not be started.
	NotStarted Reason = iota + 1
	// Died says that the worker ended without an answer: its compiler aborted, or was killed.
	Died
	// TimedOut says that the worker was ended because it took longer than [Options].Timeout.
	TimedOut
)

// String returns the reason as a short phrase.
func (r Reason) String() string {
	return enum.Name(r, "", "the worker could not be started", "the compiler's process died", "the compiler took too long")
}

// Error reports that a worker gave no answer. With TimedOut it matches context.DeadlineExceeded.
type Error struct {
	// Reason is the class of the problem.
	Reason Reason
	// State says how the worker ended, such as "signal: SIGABRT: abort", or why it was not started.
	State string
	// Killed says that something outside ended the worker, such as the kernel where memory ran out.
	Killed bool
	// Tail is the end of what the worker wrote.
	Tail string
	// Hint says what to do; it may be empty.
	Hint string
	// Err is the cause; it may be nil.
	Err error
}

// Error returns "worker: reason: state: cause; hint", with Tail on lines of its own.
func (e *Error) Error() string {
	reason := e.Reason.String()
	if e.State != "" {
		reason += ": " + e.State
	}
	if e.Killed {
		reason += " (killed from outside, as the kernel does when memory runs out)"
	}
	text := errkind.Text("worker", reason, e.Err, e.Hint)
	if e.Tail != "" {
		text += "\nthe end of what it wrote:\n" + e.Tail
	}
	return text
}

// Kind returns UnavailableError if the worker could not be started, DeadlineExceededError if it
// took too long, ResourceExhaustedError if something outside ended it, and InternalError otherwise.
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

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error { return e.Err }

// Is makes a timeout match context.DeadlineExceeded.
func (e *Error) Is(target error) bool {
	return e.Reason == TimedOut && target == context.DeadlineExceeded
}

// errTimeout ends the context of a compilation that takes too long.
var errTimeout = errors.New("the time is over")

// explain words the failure of a worker. parent is the context of who asked.
func explain(parent context.Context, limit time.Duration, err error) error {
	var died *child.Error
	switch {
	case errors.Is(err, child.ErrStart):
		return &Error{Reason: NotStarted, Err: err, Hint: "see Options.Command"}
	case errors.As(err, &died):
		e := &Error{Reason: Died, State: died.State, Killed: died.Killed(), Tail: died.Tail}
		if e.Killed {
			e.Hint = "compile fewer programs at a time by Options.Parallel, or on a machine with more memory"
		}
		return e
	case parent.Err() == nil && errors.Is(err, errTimeout):
		return &Error{Reason: TimedOut, State: fmt.Sprintf("it was ended after %v", limit), Tail: child.Tail(err), Hint: "give it longer by Options.Timeout"}
	}
	return fail("compile", err)
}

// fail is the error of an operation for a cause that says what to do.
func fail(op string, cause error) error { return &errkind.Fault{Op: "worker: " + op, Err: cause} }
