package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// AheadOfTimeError reports that a call needs the devices of a slice that is only described: it runs
// a step, or reads a value. It matches errors.ErrUnsupported.
type AheadOfTimeError struct {
	// Doing is the operation that needs the devices, such as "running train_step".
	Doing string
	// Slice is the name of the described slice.
	Slice string
}

// Error names the operation and the slice.
func (e *AheadOfTimeError) Error() string {
	return errkind.Text("strategy: "+e.Doing, fmt.Sprintf("the strategy compiles ahead of time for %s, which is not here", e.Slice), nil,
		"open a system and use New to run")
}

// Kind returns NotImplementedError.
func (*AheadOfTimeError) Kind() errkind.Kind { return errkind.NotImplementedError }

// Is reports whether target is errors.ErrUnsupported.
func (e *AheadOfTimeError) Is(target error) bool { return target == errors.ErrUnsupported }

// OrderError reports that the processes of a job called the strategy in different orders: each
// waits for the others in another call.
type OrderError struct {
	// Calls are the calls that the processes are in, by process.
	Calls []string
}

// Error says which call each process is in.
func (e *OrderError) Error() string {
	calls := make([]string, len(e.Calls))
	for i, call := range e.Calls {
		calls[i] = fmt.Sprintf("process %d is at %s", i, call)
	}
	return errkind.Text("strategy: the processes are out of step", strings.Join(calls, ", "), nil, "make the same calls in the same order on each")
}

// Kind returns RuntimeError.
func (e *OrderError) Kind() Kind { return RuntimeError }

// MismatchError reports that the processes of a job differ in something that must be the same on
// all of them, such as the program of a step.
type MismatchError struct {
	// What names what was compared, such as `program "train_step"`.
	What string
	// Texts are the texts that were compared, by process.
	Texts []string
	// Differing lists the processes whose text is not the most frequent one, ascending. Where
	// several texts are equally frequent, that of process 0 counts.
	Differing []int
}

// Error says which processes differ, and the text of each.
func (e *MismatchError) Error() string {
	var same []int
	for i := range e.Texts {
		if !slices.Contains(e.Differing, i) {
			same = append(same, i)
		}
	}
	var has strings.Builder
	for _, i := range e.Differing {
		fmt.Fprintf(&has, "process %d has %s; ", i, e.Texts[i])
	}
	fmt.Fprintf(&has, "%s has %s", many("process", same), e.Texts[same[0]])
	return errkind.Text("strategy: the processes differ in "+e.What, has.String(), nil, "start the same program with the same options and data sizes on each")
}

// Kind returns ValueError.
func (e *MismatchError) Kind() Kind { return ValueError }

func many(noun string, list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("%s %d", noun, list[0])
	}
	return fmt.Sprintf("each of %ses %s", noun, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]"))
}

// ErrRemote is matched by a read of a tensor, or of a part of it, that another process holds.
var ErrRemote = errkind.New(ValueError, "strategy: another process holds it")
