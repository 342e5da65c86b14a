package strategy

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrClosed is matched by errors from a strategy, or a value of it, that was
// closed.
var ErrClosed = errkind.New(RuntimeError, "strategy: closed")

// closedMeanwhile makes the error of a call whose buffers were closed under way match
// [ErrClosed], as it does where they were closed before.
func closedMeanwhile(err error) error {
	if errors.Is(err, pjrt.ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// ArgumentError says why an argument cannot be given to a step.
type ArgumentError struct {
	// Function is the step function's name and Argument the argument's position,
	// from 0.
	Function string
	Argument int
	// Path is the place in the nests of a [NestFunction], such as args[0].Images;
	// otherwise it is empty.
	Path string
	// Reason says what is wrong, Hint what to do instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

func (e *ArgumentError) Error() string {
	where := e.Path
	if where == "" {
		where = fmt.Sprintf("argument %d", e.Argument)
	}
	return errkind.Text("strategy: "+e.Function+": "+where, e.Reason, e.Err, e.Hint)
}

func (e *ArgumentError) Unwrap() error { return e.Err }

// Kind is the cause's, otherwise ValueError.
func (e *ArgumentError) Kind() Kind { return errkind.Or(e.Err, ValueError) }

// TraceError is a panic of a step function while it was traced: GoMLX reports
// errors that way, and so do this module's graph functions. The strategy and the
// function stay usable.
type TraceError struct {
	// Function is the step function's name.
	Function string
	// Where is the line of the step's code that panicked, or that called what did:
	// "model.go:12". It is empty if that is not known.
	Where string
	// Err is what it panicked with, as an error.
	Err error
}

func (e *TraceError) Error() string {
	if e.Where != "" {
		return fmt.Sprintf("strategy: tracing %s: at %s: %v", e.Function, e.Where, e.Err)
	}
	return fmt.Sprintf("strategy: tracing %s: %v", e.Function, e.Err)
}

func (e *TraceError) Unwrap() error { return e.Err }

// Kind is the cause's.
func (e *TraceError) Kind() Kind { return KindOf(e.Err) }

// OptionError says which option of [New] does not fit.
type OptionError struct {
	Option, Reason string
	Err            error
}

func (e *OptionError) Error() string {
	return errkind.Text("strategy: option "+e.Option, e.Reason, e.Err, "")
}

func (e *OptionError) Unwrap() error { return e.Err }

// Kind is ValueError.
func (e *OptionError) Kind() Kind { return ValueError }
