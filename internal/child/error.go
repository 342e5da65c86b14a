package child

import (
	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error reports that a child process exited without returning a result.
type Error struct {
	// State is how the child exited, such as "signal: SIGABRT: abort" or "exit status 2".
	State string
	// OutputTail is the end of the child's output.
	OutputTail string
}

// Error returns a text that starts with "the process died: state".
func (e *Error) Error() string {
	reason := e.State
	if e.Killed() {
		reason += " (killed by another process or by the kernel, which happens when memory runs out)"
	}
	return errkind.Format("the process died", reason, nil, "")
}

// Kind returns InternalError.
func (*Error) Kind() errkind.Kind { return errkind.InternalError }

// Killed reports whether another process or the kernel killed the child.
func (e *Error) Killed() bool { return e.State == "signal: killed" }

// ErrStart is matched by errors for a child process that could not be started.
var ErrStart = errkind.New(errkind.UnavailableError, "starting")

func startError(path string, cause error) error {
	return &errkind.Fault{Match: ErrStart, Subject: path, Err: cause, Class: errkind.KindOf(cause)}
}
