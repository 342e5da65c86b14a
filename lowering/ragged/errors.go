package ragged

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Error says what of a step cannot leave padding out.
type Error struct {
	// Op is the operation, as StableHLO names it: "reverse". It is empty if the step as a whole
	// is at fault.
	Op string
	// Shape is the value's that it was to be applied to, with its padded sizes, and Dim the
	// padded dimension, or -1.
	Shape []int
	Dim   int
	// Reason says why, Hint what to do instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

func (e *Error) Error() string {
	text := "ragged: "
	if e.Op != "" {
		text += e.Op
		if e.Shape != nil {
			text += fmt.Sprintf(" of shape %v", e.Shape)
		}
		if e.Dim >= 0 {
			text += fmt.Sprintf(", whose dimension %d is padded", e.Dim)
		}
		text += ": "
	}
	text += e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Kind is the cause's, otherwise InvalidArgumentError.
func (e *Error) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.InvalidArgumentError) }
