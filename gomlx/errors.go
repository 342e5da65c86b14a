package gomlx

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrFinalized is returned by operations on a backend, a buffer or an executable after its
	// Finalize.
	ErrFinalized = errkind.New(errkind.RuntimeError, "gomlx: the object is finalized")

	errBackendFinalized    = finalizedError("backend")
	errBufferFinalized     = finalizedError("buffer")
	errExecutableFinalized = finalizedError("executable")

	// ErrDonated is returned by operations on a buffer that was donated to an execution.
	ErrDonated = errkind.New(errkind.RuntimeError, "gomlx: the buffer was donated to an execution")
)

// finalizedError returns an error for the use of an object after its Finalize. The error matches
// ErrFinalized and names the object.
func finalizedError(object string) error {
	return &errkind.Fault{Op: "gomlx", Reason: "the " + object + " is finalized", Match: ErrFinalized,
		Hint: "call Finalize after its last use"}
}

func argumentError(op, reason, hint string) error {
	return &errkind.Fault{Op: "gomlx: " + op, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

func wrapError(op, subject string, cause error) error {
	return &errkind.Fault{Op: "gomlx: " + op, Subject: subject,
		Class: errkind.KindOr(cause, errkind.InvalidArgumentError), Err: cause}
}

// MismatchError reports that the processes of a job differ in something that must be the same on
// all of them: the text of a program, or the first value of a variable.
type MismatchError struct {
	// Subject names the compared object, such as `variable "/dense/weights"`, and Hint is a
	// suggestion.
	Subject, Hint string
	// Processes contains the processes that differ from the majority, in ascending order. If there
	// is no majority, it contains those that differ from process 0.
	Processes []int
}

// Error returns a message with the differing processes and the hint.
func (e *MismatchError) Error() string {
	return errkind.Format("gomlx: "+e.Subject, fmt.Sprintf("processes %v have another than the rest", e.Processes), nil,
		e.Hint)
}

// Kind returns ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }
