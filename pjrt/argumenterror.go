package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ArgumentError reports an invalid buffer, or an invalid list of buffers, that was passed to
// [LoadedExecutable.Execute]. Nothing was executed or donated.
type ArgumentError struct {
	// IsResult is true for a result slot, false for an argument.
	IsResult bool
	// Device is the index of the device in launch order, and Index the index of the parameter or
	// result. A field is -1 if the error concerns the complete list.
	Device, Index int
	// Reason describes the problem: the actual and the expected value.
	Reason string
	// Hint suggests a correction. It may be empty.
	Hint string
	// Err is ErrClosed, ErrDonated, ErrBusy or nil.
	Err error
}

// Error returns a text such as "pjrt: execute: argument 2 of device 1: reason: cause; hint".
func (e *ArgumentError) Error() string {
	what := "argument"
	if e.IsResult {
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
	return errkind.Format("pjrt: execute: "+what, e.Reason, e.Err, e.Hint)
}

// Kind returns the kind of Err, or InvalidArgumentError if Err is nil.
func (e *ArgumentError) Kind() errkind.Kind {
	return errkind.KindOr(e.Err, errkind.InvalidArgumentError)
}

// Unwrap returns Err.
func (e *ArgumentError) Unwrap() error { return e.Err }
