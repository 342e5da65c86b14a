package backend

import "github.com/tpustrategy/tpustrategy/errkind"

// ErrFinalized is returned by every use of a backend, or of what came from it, after its Finalize.
var ErrFinalized = errkind.New(errkind.RuntimeError, "backend: it is finalized")

// fault is an error about what the caller gave.
func fault(op, reason, hint string) error {
	return &errkind.Fault{Op: "backend: " + op, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

// failed is an error about what could not be done, for its cause.
func failed(op, subject string, cause error) error {
	return &errkind.Fault{Op: "backend: " + op, Subject: subject, Class: errkind.Or(cause, errkind.InvalidArgumentError), Err: cause}
}
