package child

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error is that a child ended without an answer.
type Error struct {
	// State is how it ended, such as "signal: SIGABRT: abort" or "exit status 2".
	State string
	// Tail is the end of what it wrote.
	Tail string
}

func (e *Error) Error() string {
	text := "the process died: " + e.State
	if e.Killed() {
		text += " (killed from outside, as the kernel does when memory runs out)"
	}
	return text
}

// Kind is InternalError.
func (*Error) Kind() errkind.Kind { return errkind.InternalError }

// Killed reports whether something outside ended the child, such as the kernel where
// memory ran out.
func (e *Error) Killed() bool { return e.State == "signal: killed" }

// StartError is that a child could not be started.
type StartError struct {
	// Path is the program.
	Path string
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("starting %s: %v", e.Path, e.Err) }

// Kind is that of the cause, or UnavailableError.
func (e *StartError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.UnavailableError) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
