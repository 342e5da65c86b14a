package gomlx

import "github.com/tpustrategy/tpustrategy/errkind"

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
