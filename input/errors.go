package input

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault returns an error of an operation with the given kind, reason and hint.
func fault(kind errkind.Kind, op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "input: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: kind}
}

// wrong returns a ValueError for an invalid argument of op.
func wrong(op, hint, format string, args ...any) error {
	return fault(errkind.ValueError, op, hint, format, args...)
}

// within adds the operation and the subject to an error.
func within(op, subject string, err error) error {
	return &errkind.Fault{Op: "input: " + op, Subject: subject, Err: err}
}

// misfit returns an error for a position of another dataset. It matches ErrState.
func misfit(format string, args ...any) error {
	return &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the dataset that gave it, over the same data, or begin at the zero State"}
}

// corrupt returns an error for bytes that do not follow the file's format. It matches ErrCorrupt.
func corrupt(cause error, hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrCorrupt, Reason: fmt.Sprintf(format, args...), Err: cause, Hint: hint}
}

// fail returns a dataset whose Err is a ValueError for an invalid argument.
func fail(op, hint, format string, args ...any) Dataset {
	return Dataset{failure{wrong(op, hint, format, args...)}}
}

// unsupported returns an error for an option that TensorFlow supports and this package does not. It
// matches errors.ErrUnsupported.
func unsupported(op, hint, reason string) error {
	return &errkind.Fault{Op: "input: " + op, Reason: reason, Hint: hint, Match: errors.ErrUnsupported, Class: errkind.NotImplementedError}
}
