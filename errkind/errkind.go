package errkind

import (
	"context"
	"errors"
	"io/fs"
)

// Kind is the class of an error.
type Kind int

const (
	// Unknown is the kind of an error that does not specify a kind, such as most errors of other
	// modules.
	Unknown Kind = iota
	// ValueError means that a value is invalid.
	ValueError
	// TypeError means that a value has the wrong type or dtype.
	TypeError
	// RuntimeError means that a call failed or is not allowed in the current state.
	RuntimeError
	// NotImplementedError means that this module or the plugin does not support an operation.
	NotImplementedError
	// AssertionError means that a nest, a destination or a value violates a precondition.
	AssertionError
	// InvalidArgumentError means that an op or a compiler does not support a shape or a program.
	InvalidArgumentError
	// OutOfRangeError means that the input is exhausted.
	OutOfRangeError
	// NotFoundError means that a file, a device or a name does not exist.
	NotFoundError
	// ResourceExhaustedError means that there is not enough memory or disk space.
	ResourceExhaustedError
	// DataLossError means that stored data is corrupt.
	DataLossError
	// FailedPreconditionError means that an object cannot be used in its current state, for example
	// because it is closed.
	FailedPreconditionError
	// UnavailableError means that another process or a service does not respond.
	UnavailableError
	// PermissionDeniedError means that permission is missing, or that an object is not trusted.
	PermissionDeniedError
	// DeadlineExceededError means that the deadline of a context has passed.
	DeadlineExceededError
	// CancelledError means that the context was canceled.
	CancelledError
	// InternalError means that a plugin or this module has a bug.
	InternalError
)

var kindNames = [...]string{"unknown", "ValueError", "TypeError", "RuntimeError", "NotImplementedError",
	"AssertionError",
	"InvalidArgumentError",
	"OutOfRangeError", "NotFoundError", "ResourceExhaustedError", "DataLossError", "FailedPreconditionError",
	"UnavailableError", "PermissionDeniedError", "DeadlineExceededError", "CancelledError", "InternalError"}

// String returns the name of the TensorFlow exception.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return kindNames[Unknown]
	}
	return kindNames[k]
}

// Error is an error with a kind.
type Error interface {
	error
	Kind() Kind
}

// KindOf returns the kind of the first error in the tree of err (see package errors) that has a
// kind. It also maps errors.ErrUnsupported, fs.ErrNotExist, fs.ErrPermission, context.Canceled and
// context.DeadlineExceeded to kinds.
func KindOf(err error) Kind {
	if k := findKind(err); k != Unknown {
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

func findKind(err error) Kind {
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
		return findKind(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if k := findKind(err); k != Unknown {
				return k
			}
		}
	}
	return Unknown
}

// KindOr returns the kind of err, or fallback if the kind of err is Unknown.
func KindOr(err error, fallback Kind) Kind {
	if k := KindOf(err); k != Unknown {
		return k
	}
	return fallback
}

// New returns an error with a kind, for package-level variables that callers match with errors.Is.
func New(kind Kind, text string) error { return &kindError{text, kind} }

type kindError struct {
	text string
	kind Kind
}

func (e *kindError) Error() string { return e.text }

func (e *kindError) Kind() Kind { return e.kind }
