package pjrt

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Code is a PJRT error code. It is itself an error, so that errors.Is(err, pjrt.ResourceExhausted)
// works at any depth.
type Code int

// The codes of PJRT_Error_Code.
const (
	OK Code = iota
	Cancelled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
	"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// String returns the name of the C constant, such as "PJRT_Error_Code_RESOURCE_EXHAUSTED".
func (c Code) String() string { return "PJRT_Error_Code_" + c.Error() }

// Error returns the short name, such as "RESOURCE_EXHAUSTED".
func (c Code) Error() string {
	if c < 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("CODE_%d", int(c))
	}
	return codeNames[c]
}

// Kind returns the kind of the exception that TensorFlow raises for the same code.
func (c Code) Kind() errkind.Kind {
	switch c {
	case Cancelled:
		return errkind.CancelledError
	case InvalidArgument:
		return errkind.InvalidArgumentError
	case DeadlineExceeded:
		return errkind.DeadlineExceededError
	case NotFound:
		return errkind.NotFoundError
	case PermissionDenied, Unauthenticated:
		return errkind.PermissionDeniedError
	case ResourceExhausted:
		return errkind.ResourceExhaustedError
	case FailedPrecondition, Aborted, AlreadyExists:
		return errkind.FailedPreconditionError
	case OutOfRange:
		return errkind.OutOfRangeError
	case Unimplemented:
		return errkind.NotImplementedError
	case Unavailable:
		return errkind.UnavailableError
	case DataLoss:
		return errkind.DataLossError
	}
	return errkind.InternalError
}

// Is makes Unimplemented match errors.ErrUnsupported.
func (c Code) Is(target error) bool { return c == Unimplemented && target == errors.ErrUnsupported }
