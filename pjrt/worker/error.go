package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
)

// Reason says why there is no answer.
type Reason int

const (
	// NotStarted is a worker that could not be started.
	NotStarted Reason = iota + 1
	// Died is one that ended without an answer: a compiler that aborted, or was killed.
	Died
	// TimedOut is one that was ended because it took longer than [Options].Timeout.
	TimedOut
)

var reasons = [...]string{"", "the worker could not be started", "the compiler's process died", "the compiler took too long"}

// String is a short phrase.
func (r Reason) String() string {
	if r < 1 || int(r) >= len(reasons) {
		return fmt.Sprintf("Reason(%d)", int(r))
	}
	return reasons[r]
}

// Error is that a worker gave no answer. With TimedOut it matches
// context.DeadlineExceeded.
type Error struct {
	Reason Reason
	// State is how the worker ended, such as "signal: SIGABRT: abort".
	State string
	// Killed says that something outside ended it, such as the kernel where memory ran
	// out.
	Killed bool
	// Tail is the end of what it wrote.
	Tail string
	Err  error
}

func (e *Error) Error() string {
	text := "worker: " + e.Reason.String()
	if e.State != "" {
		text += ": " + e.State
	}
	if e.Killed {
		text += " (killed from outside, as the kernel does when memory runs out)"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Tail != "" {
		text += "\nthe end of what it wrote:\n" + e.Tail
	}
	return text
}

// Kind is UnavailableError for a worker that could not be started, DeadlineExceededError
// for one that took too long, ResourceExhaustedError for one that something outside
// ended, otherwise InternalError.
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
	var start *child.StartError
	switch {
	case errors.As(err, &start):
		return &Error{Reason: NotStarted, Err: err}
	case errors.As(err, &died):
		return &Error{Reason: Died, State: died.State, Killed: died.Killed(), Tail: died.Tail}
	case parent.Err() == nil && errors.Is(err, errTimeout):
		return &Error{Reason: TimedOut, State: fmt.Sprintf("it was ended after %v", limit), Tail: child.Tail(err)}
	}
	return fmt.Errorf("worker: compile: %w", err)
}
