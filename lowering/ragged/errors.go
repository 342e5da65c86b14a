package ragged

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error reports an operation that does not support padding.
type Error struct {
	// Op is the StableHLO name of the operation, such as "reverse". It is "" for an error about the
	// whole step.
	Op string
	// Shape is the padded shape of the operand. Dim is its padded dimension, or -1.
	Shape []int
	Dim   int
	// Reason describes the cause, and Hint suggests a correction.
	Reason, Hint string
	// Err is the underlying error, or nil.
	Err error
}

// Error returns "ragged: op of shape, whose dimension is padded: reason: cause; hint".
func (e *Error) Error() string {
	if e.Op == "" {
		return errkind.Format("ragged", e.Reason, e.Err, e.Hint)
	}
	what := "ragged: " + e.Op
	if e.Shape != nil {
		what += fmt.Sprintf(" of shape %v", e.Shape)
	}
	if e.Dim >= 0 {
		what += fmt.Sprintf(", whose dimension %d is padded", e.Dim)
	}
	return errkind.Format(what, e.Reason, e.Err, e.Hint)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Kind returns the kind of Err, by default InvalidArgumentError.
func (e *Error) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.InvalidArgumentError) }
