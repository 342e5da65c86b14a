package strategy

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrClosed is matched by the errors of a strategy that was closed, and of its values and variables
// that were closed.
var ErrClosed = errkind.New(RuntimeError, "strategy: closed")

// closed returns the error of something that was closed: it matches [ErrClosed].
func closed(what string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(what, args...), Match: ErrClosed}
}

// closedMeanwhile makes the error of a call whose buffers were closed under way match [ErrClosed],
// as it does where they were closed before.
func closedMeanwhile(err error) error {
	if errors.Is(err, pjrt.ErrClosed) && !errors.Is(err, ErrClosed) {
		return &Error{Match: ErrClosed, Err: err}
	}
	return err
}

// ArgumentError says why a step cannot take an argument.
type ArgumentError struct {
	// Function is the name of the step function, Argument the position of the argument, from 0.
	Function string
	Argument int
	// Path is the place in the nests of a [NestFunction], such as args[0].Images; otherwise it is
	// empty.
	Path string
	// Reason says what is wrong, Hint what to do instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

// Error names the function, the argument and what is wrong.
func (e *ArgumentError) Error() string {
	where := e.Path
	if where == "" {
		where = fmt.Sprintf("argument %d", e.Argument)
	}
	return errkind.Text("strategy: "+e.Function+": "+where, e.Reason, e.Err, e.Hint)
}

// Unwrap returns the cause, or nil.
func (e *ArgumentError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, or ValueError without one.
func (e *ArgumentError) Kind() Kind { return errkind.Or(e.Err, ValueError) }

// TraceError reports that a step function panicked while it was traced: GoMLX's graph functions
// report their errors that way, and so do this module's. The strategy and the function stay usable.
type TraceError struct {
	// Function is the name of the step function.
	Function string
	// Where is the line of the step's code that panicked, or whose call did, such as "model.go:12".
	// It is empty if the line is not known.
	Where string
	// Err is the value of the panic, as an error.
	Err error
}

// Error names the function, the line and the cause.
func (e *TraceError) Error() string {
	where := e.Where
	if where != "" {
		where = "at " + where
	}
	return errkind.Text("strategy: tracing "+e.Function, where, e.Err, "")
}

// Unwrap returns the cause.
func (e *TraceError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause.
func (e *TraceError) Kind() Kind { return KindOf(e.Err) }

// OptionError says which option of [New] does not fit, and why.
type OptionError struct {
	Option, Reason string
	Err            error
}

// Error names the option and what is wrong.
func (e *OptionError) Error() string {
	return errkind.Text("strategy: option "+e.Option, e.Reason, e.Err, "")
}

// Unwrap returns the cause, or nil.
func (e *OptionError) Unwrap() error { return e.Err }

// Kind returns ValueError.
func (e *OptionError) Kind() Kind { return ValueError }
