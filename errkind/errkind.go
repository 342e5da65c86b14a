package errkind

import (
	"context"
	"errors"
	"io/fs"
)

// Kind is the class of an error.
type Kind int

const (
	// Unknown is the kind of an error that does not tell its kind, such as most errors of other
	// modules.
	Unknown Kind = iota
	// ValueError says that a value does not fit.
	ValueError
	// TypeError says that a value is of the wrong sort or dtype.
	TypeError
	// RuntimeError says that a call failed, or does not belong where it was made.
	RuntimeError
	// NotImplementedError says that this module, or the plugin, does not do what was asked.
	NotImplementedError
	// AssertionError says that a nest, a destination or a value breaks a precondition.
	AssertionError
	// InvalidArgumentError says that an op or a compiler cannot take a shape or a program.
	InvalidArgumentError
	// OutOfRangeError says that the input has ended.
	OutOfRangeError
	// NotFoundError says that a file, a device or a name does not exist.
	NotFoundError
	// ResourceExhaustedError says that memory does not suffice.
	ResourceExhaustedError
	// DataLossError says that stored bytes have changed.
	DataLossError
	// FailedPreconditionError says that an object is in a state in which it cannot be used, such as
	// an object that is closed elsewhere.
	FailedPreconditionError
	// UnavailableError says that another process or a service does not answer.
	UnavailableError
	// PermissionDeniedError says that the user may not do something, or should not trust something.
	PermissionDeniedError
	// DeadlineExceededError says that a wait took longer than its context.
	DeadlineExceededError
	// CancelledError says that the context of the work was canceled.
	CancelledError
	// InternalError says that a plugin or this module has a fault.
	InternalError
)

var names = [...]string{"unknown", "ValueError", "TypeError", "RuntimeError", "NotImplementedError", "AssertionError", "InvalidArgumentError",
	"OutOfRangeError", "NotFoundError", "ResourceExhaustedError", "DataLossError", "FailedPreconditionError", "UnavailableError",
	"PermissionDeniedError", "DeadlineExceededError", "CancelledError", "InternalError"}

// String returns the name of TensorFlow's exception.
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

// Of returns the kind of the first error in err's tree that has one. Errors of Go's own packages
// have a kind too: errors.ErrUnsupported, fs.ErrNotExist, fs.ErrPermission, and the two errors of
// contexts.
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

// Or returns the kind of err as [Of] does, or otherwise if that is not known.
func Or(err error, otherwise Kind) Kind {
	if k := Of(err); k != Unknown {
		return k
	}
	return otherwise
}

// New returns an error of a kind, for package-level errors that others match with errors.Is.
func New(kind Kind, text string) error { return &sentinel{text, kind} }

type sentinel struct {
	text string
	kind Kind
}

func (e *sentinel) Error() string { return e.text }

func (e *sentinel) Kind() Kind { return e.kind }
