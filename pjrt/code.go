package pjrt

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Code is a PJRT error code. Code implements error, so that errors.Is(err, pjrt.ResourceExhausted)
// reports whether a wrapped error has this code.
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

// codes contains the name of each code and the kind of the exception that TensorFlow raises for it.
var codes = [...]struct {
	name string
	kind errkind.Kind
}{
	OK:                 {"OK", errkind.InternalError},
	Cancelled:          {"CANCELLED", errkind.CancelledError},
	Unknown:            {"UNKNOWN", errkind.InternalError},
	InvalidArgument:    {"INVALID_ARGUMENT", errkind.InvalidArgumentError},
	DeadlineExceeded:   {"DEADLINE_EXCEEDED", errkind.DeadlineExceededError},
	NotFound:           {"NOT_FOUND", errkind.NotFoundError},
	AlreadyExists:      {"ALREADY_EXISTS", errkind.FailedPreconditionError},
	PermissionDenied:   {"PERMISSION_DENIED", errkind.PermissionDeniedError},
	ResourceExhausted:  {"RESOURCE_EXHAUSTED", errkind.ResourceExhaustedError},
	FailedPrecondition: {"FAILED_PRECONDITION", errkind.FailedPreconditionError},
	Aborted:            {"ABORTED", errkind.FailedPreconditionError},
	OutOfRange:         {"OUT_OF_RANGE", errkind.OutOfRangeError},
	Unimplemented:      {"UNIMPLEMENTED", errkind.NotImplementedError},
	Internal:           {"INTERNAL", errkind.InternalError},
	Unavailable:        {"UNAVAILABLE", errkind.UnavailableError},
	DataLoss:           {"DATA_LOSS", errkind.DataLossError},
	Unauthenticated:    {"UNAUTHENTICATED", errkind.PermissionDeniedError},
}

// String returns the name of the C constant, such as "PJRT_Error_Code_RESOURCE_EXHAUSTED".
func (c Code) String() string { return "PJRT_Error_Code_" + c.Error() }

// Error returns the short name of the code, such as "RESOURCE_EXHAUSTED".
func (c Code) Error() string {
	if c < 0 || int(c) >= len(codes) {
		return fmt.Sprintf("CODE_%d", int(c))
	}
	return codes[c].name
}

// Kind returns the kind of the exception that TensorFlow raises for the code.
func (c Code) Kind() errkind.Kind {
	if c < 0 || int(c) >= len(codes) {
		return errkind.InternalError
	}
	return codes[c].kind
}

// Is reports whether target is errors.ErrUnsupported and the code is Unimplemented.
func (c Code) Is(target error) bool { return c == Unimplemented && target == errors.ErrUnsupported }
