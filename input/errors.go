package input

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault returns an error of a kind: what op found wrong, and what to do.
func fault(kind errkind.Kind, op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "input: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: kind}
}

// wrong is the fault of a value that op cannot take.
func wrong(op, hint, format string, args ...any) error {
	return fault(errkind.ValueError, op, hint, format, args...)
}

// within puts the operation, and what it was about, before an error from further inside.
func within(op, subject string, err error) error {
	return &errkind.Fault{Op: "input: " + op, Subject: subject, Err: err}
}

// misfit is the error of a position that this dataset did not give. It matches ErrState.
func misfit(format string, args ...any) error {
	return &errkind.Fault{Match: ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the dataset that gave it, over the same data, or begin at the zero State"}
}

// corrupt is the error of bytes that are not in their file's format. It matches ErrCorrupt.
func corrupt(cause error, hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrCorrupt, Reason: fmt.Sprintf(format, args...), Err: cause, Hint: hint}
}

// fail returns a dataset that answers with the fault of a wrong argument.
func fail(op, hint, format string, args ...any) Dataset {
	return Dataset{failure{wrong(op, hint, format, args...)}}
}

// unsupported is the error of what TensorFlow allows and no pipeline here does. It matches
// errors.ErrUnsupported.
func unsupported(op, hint, reason string) error {
	return &errkind.Fault{Op: "input: " + op, Reason: reason, Hint: hint, Match: errors.ErrUnsupported, Class: errkind.NotImplementedError}
}
