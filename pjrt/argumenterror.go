package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ArgumentError reports what is wrong with a buffer, or with the list of buffers, of an Execute
// call. Nothing was executed then.
type ArgumentError struct {
	// Result is true for a result slot, false for an argument.
	Result bool
	// Device is the position in launch order, and Index the number of the parameter or result; each
	// is -1 where the list itself is wrong.
	Device, Index int
	// Reason says what was found and what was expected.
	Reason string
	// Hint says what to write instead; it may be empty.
	Hint string
	// Err is ErrClosed, ErrDonated, ErrBusy or nil.
	Err error
}

// Error returns a text such as "pjrt: execute: argument 2 of device 1: reason: cause; hint".
func (e *ArgumentError) Error() string {
	what := "argument"
	if e.Result {
		what = "result"
	}
	switch {
	case e.Index >= 0 && e.Device >= 0:
		what = fmt.Sprintf("%s %d of device %d", what, e.Index, e.Device)
	case e.Index >= 0:
		what = fmt.Sprintf("%s %d", what, e.Index)
	case e.Device >= 0:
		what = fmt.Sprintf("%ss of device %d", what, e.Device)
	default:
		what += "s"
	}
	return errkind.Text("pjrt: execute: "+what, e.Reason, e.Err, e.Hint)
}

// Kind returns the kind of the cause, or InvalidArgumentError without one.
func (e *ArgumentError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.InvalidArgumentError) }

// Unwrap returns the cause, which may be nil.
func (e *ArgumentError) Unwrap() error { return e.Err }
