package input

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func newFault(kind errkind.Kind, op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "input: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: kind}
}

func valueError(op, hint, format string, args ...any) error {
	return newFault(errkind.ValueError, op, hint, format, args...)
}

func wrapError(op, subject string, err error) error {
	return &errkind.Fault{Op: "input: " + op, Subject: subject, Err: err}
}

// stateError returns an error for a position that was saved by another dataset. It matches ErrState.
func stateError(format string, args ...any) error {
	return &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the dataset that gave it, over the same data, or begin at the zero State"}
}

// corruptError returns an error for malformed file contents. It matches ErrCorrupt.
func corruptError(cause error, hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrCorrupt, Reason: fmt.Sprintf(format, args...), Err: cause, Hint: hint}
}

// invalidDataset returns a dataset whose Err is a ValueError for an invalid argument.
func invalidDataset(op, hint, format string, args ...any) Dataset {
	return Dataset{errorSource{valueError(op, hint, format, args...)}}
}

// unsupportedError returns an error for an option that only TensorFlow supports. It matches
// errors.ErrUnsupported.
func unsupportedError(op, hint, reason string) error {
	return &errkind.Fault{Op: "input: " + op, Reason: reason, Hint: hint, Match: errors.ErrUnsupported,
		Class: errkind.NotImplementedError}
}
