package errkind

import (
	"context"
	"errors"
	"io/fs"
)

// Kind is the class of an error.
type Kind int

const (
	// Unknown is the kind of errors from elsewhere.
	Unknown Kind = iota
	// ValueError is a value that does not fit.
	ValueError
	// TypeError is a value of the wrong sort or dtype.
	TypeError
	// RuntimeError is a call that does not belong where it was made, or that failed.
	RuntimeError
	// NotImplementedError is what is not done here.
	NotImplementedError
	// AssertionError is a nest, a destination or a value that breaks a precondition.
	AssertionError
	// InvalidArgumentError is a shape or a program that an op, or a compiler, cannot
	// take.
	InvalidArgumentError
	// OutOfRangeError is input that has ended.
	OutOfRangeError
	// NotFoundError is a file, a device or a name that does not exist.
	NotFoundError
	// ResourceExhaustedError is memory that does not suffice.
	ResourceExhaustedError
	// DataLossError is stored bytes that changed.
	DataLossError
	// FailedPreconditionError is an object in a state in which it cannot be used, such as
	// one that is closed elsewhere.
	FailedPreconditionError
	// UnavailableError is another process or a service that does not answer.
	UnavailableError
	// PermissionDeniedError is what the user may not do or should not trust.
	PermissionDeniedError
	// DeadlineExceededError is a wait that took longer than its context.
	DeadlineExceededError
	// CancelledError is work whose context was cancelled.
	CancelledError
	// InternalError is a fault of a plugin or of this module.
	InternalError
)

var names = [...]string{"unknown", "ValueError", "TypeError", "RuntimeError", "NotImplementedError", "AssertionError", "InvalidArgumentError",
	"OutOfRangeError", "NotFoundError", "ResourceExhaustedError", "DataLossError", "FailedPreconditionError", "UnavailableError",
	"PermissionDeniedError", "DeadlineExceededError", "CancelledError", "InternalError"}

// String returns TensorFlow's name of the exception.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(names) {
		return names[Unknown]
	}
	return names[k]
}

// Error is an error that knows its kind.
type Error interface {
	error
	Kind() Kind
}

// Of returns the kind of the first error in err's tree that has one. Those of Go's own
// packages count that say as much: what is not supported, files that do not exist or are
// not to be used, and contexts that ended.
func Of(err error) Kind {
	if k := of(err); k != Unknown {
		return k
	}
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		return NotImplementedError
	case errors.Is(err, fs.ErrNotExist):
		return NotFoundError
	case errors.Is(err, fs.ErrPermission):
		return PermissionDeniedError
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceededError
	case errors.Is(err, context.Canceled):
		return CancelledError
	}
	return Unknown
}

func of(err error) Kind {
	if err == nil {
		return Unknown
	}
	if e, ok := err.(Error); ok {
		if k := e.Kind(); k != Unknown {
			return k
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return of(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if k := of(err); k != Unknown {
				return k
			}
		}
	}
	return Unknown
}

// Or is [Of], or another kind if that is not known.
func Or(err error, otherwise Kind) Kind {
	if k := Of(err); k != Unknown {
		return k
	}
	return otherwise
}

// New returns an error of a kind, for package-level errors that others match with
// errors.Is.
func New(kind Kind, text string) error { return &sentinel{text, kind} }

type sentinel struct {
	text string
	kind Kind
}

func (e *sentinel) Error() string { return e.text }

func (e *sentinel) Kind() Kind { return e.kind }
