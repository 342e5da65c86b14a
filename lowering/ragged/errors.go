package ragged

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error reports what in a step cannot leave padding out.
type Error struct {
	// Op is the operation, as StableHLO names it: "reverse". It is empty if the step as a whole
	// is at fault.
	Op string
	// Shape is the shape of the operation's operand, with its padded sizes, and Dim the operand's
	// padded dimension, or -1.
	Shape []int
	Dim   int
	// Reason says why, and Hint what to do instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

// Error returns "ragged: op of shape, whose dimension is padded: reason: cause; hint".
func (e *Error) Error() string {
	if e.Op == "" {
		return errkind.Text("ragged", e.Reason, e.Err, e.Hint)
	}
	what := "ragged: " + e.Op
	if e.Shape != nil {
		what += fmt.Sprintf(" of shape %v", e.Shape)
	}
	if e.Dim >= 0 {
		what += fmt.Sprintf(", whose dimension %d is padded", e.Dim)
	}
	return errkind.Text(what, e.Reason, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or InvalidArgumentError.
func (e *Error) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.InvalidArgumentError) }
