package child

import (
	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error reports that a child ended without an answer.
type Error struct {
	// State says how the child ended, such as "signal: SIGABRT: abort" or "exit status 2".
	State string
	// Tail is the end of what the child wrote.
	Tail string
}

// Error returns "the process died: state".
func (e *Error) Error() string {
	reason := e.State
	if e.Killed() {
		reason += " (killed from outside, as the kernel does when memory runs out)"
	}
	return errkind.Text("the process died", reason, nil, "")
}

// Kind returns InternalError.
func (*Error) Kind() errkind.Kind { return errkind.InternalError }

// Killed reports whether something outside ended the child, such as the kernel where memory ran
// out.
func (e *Error) Killed() bool { return e.State == "signal: killed" }

// ErrStart is matched by the error of a child that could not be started.
var ErrStart = errkind.New(errkind.UnavailableError, "starting")

func notStarted(path string, cause error) error {
	return &errkind.Fault{Match: ErrStart, Subject: path, Err: cause, Class: errkind.Of(cause)}
}
