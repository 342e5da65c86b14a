package gomlx

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrFinalized is returned by every use of a backend, of a buffer or of an executable after its
	// Finalize.
	ErrFinalized = errkind.New(errkind.RuntimeError, "gomlx: it is finalized")

	// ErrDonated is returned by every use of a buffer that was donated to an execution.
	ErrDonated = errkind.New(errkind.RuntimeError, "gomlx: the buffer was donated to an execution")
)

// fault is an error about what the caller gave.
func fault(op, reason, hint string) error {
	return &errkind.Fault{Op: "gomlx: " + op, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

// failed is an error about what could not be done, for its cause.
func failed(op, subject string, cause error) error {
	return &errkind.Fault{Op: "gomlx: " + op, Subject: subject, Class: errkind.Or(cause, errkind.InvalidArgumentError), Err: cause}
}

// MismatchError reports that the processes of a job differ in something that must be the same on
// all of them: the text of a program, or the first value of a variable.
type MismatchError struct {
	// What names what was compared, such as `variable "/dense/weights"`, and Hint says what makes it
	// the same.
	What, Hint string
	// Differing are the processes that have something else than most, ascending; where no value has
	// the most processes, something else than process 0.
	Differing []int
}

// Error says which processes differ, and what to do.
func (e *MismatchError) Error() string {
	return errkind.Text("gomlx: "+e.What, fmt.Sprintf("processes %v have another than the rest", e.Differing), nil, e.Hint)
}

// Kind returns ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }
