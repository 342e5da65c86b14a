package strategy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/usercode"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// ErrClosed is matched by the errors of a strategy that was closed, and of its values and variables
// that were closed.
var ErrClosed = errkind.New(errkind.RuntimeError, "strategy: closed")

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

// ArgumentError reports that a step function does not accept an argument.
type ArgumentError struct {
	// Function is the name of the step function, Argument the position of the argument, from 0.
	Function string
	Argument int
	// Path is the place in the nests of a [nest.Function], such as args[0].Images; otherwise it is
	// empty.
	Path string
	// Reason describes the problem, and Hint the correction.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error

	// rows is set if another argument has a different number of rows. Reason then continues the
	// sentence that begins with the argument.
	rows bool
}

// Error names the function, the argument and the problem.
func (e *ArgumentError) Error() string {
	where := e.Path
	if where == "" {
		where = fmt.Sprintf("argument %d", e.Argument)
	}
	if e.rows {
		return errkind.Text(fmt.Sprintf("strategy: run %q: %s %s", e.Function, where, e.Reason), "", nil, e.Hint)
	}
	return errkind.Text("strategy: "+e.Function+": "+where, e.Reason, e.Err, e.Hint)
}

// Unwrap returns the cause, or nil.
func (e *ArgumentError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, or ValueError without one.
func (e *ArgumentError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.ValueError) }

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
func (e *TraceError) Kind() errkind.Kind { return errkind.Of(e.Err) }

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
func (e *OptionError) Kind() errkind.Kind { return errkind.ValueError }

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
func (e *MismatchError) Kind() errkind.Kind { return errkind.ValueError }

func many(noun string, list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("%s %d", noun, list[0])
	}
	return fmt.Sprintf("each of %ses %s", noun, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]"))
}

var (
	// ErrRemote is matched by a read of a tensor, or of a part of it, that another process holds.
	ErrRemote = errkind.New(errkind.ValueError, "strategy: another process holds it")
	// ErrOutOfStep is matched by the error that all processes of a job get where they called the
	// strategy in different orders, so that each waited for the others in another call. The text
	// says which call each process is in.
	ErrOutOfStep = errkind.New(errkind.RuntimeError, "strategy: the processes are out of step")
	// ErrAheadOfTime is matched by the error of a call that needs the devices of a slice which is
	// only described: it runs a step, or reads a value. The error matches errors.ErrUnsupported,
	// too.
	ErrAheadOfTime error = &Error{Op: "strategy: the slice is not here", Match: errors.ErrUnsupported}
)

// outOfStep is the error of processes that are in different calls, by process.
func outOfStep(calls []string) error {
	where := make([]string, len(calls))
	for i, call := range calls {
		where[i] = fmt.Sprintf("process %d is at %s", i, call)
	}
	return &Error{Match: ErrOutOfStep, Reason: strings.Join(where, ", "), Hint: "make the same calls in the same order on each"}
}

// Error reports a value, a variable or a nest that does not fit: the operation, what is wrong, what
// to write instead, the kind and the cause.
type Error = errkind.Fault

var (
	// ErrContext is matched by the error of a call in the wrong context: a cross-replica call in a
	// replica's code, a replica's call outside it, or a call that acts at once in a step that is
	// being traced. The error is an *[Error], whose Hint says where the call belongs.
	ErrContext = errkind.New(errkind.RuntimeError, "strategy: the wrong context")
	// ErrOtherStrategy is matched by the error of a value, a variable, a function or a scope of one
	// strategy that was given to another strategy.
	ErrOtherStrategy = fault.ErrOtherStrategy
)

// panickedAt is the line of a step's code that the panic came from, which is being recovered by the
// function that calls panickedAt: the innermost frame that is no library's. It is empty if the
// step's code is not on the stack.
func panickedAt() string {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		switch {
		case !more || strings.HasSuffix(frame.Function, "strategy.(*Function).lower"):
			return ""
		case !usercode.Library(frame):
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
}

// A step's code runs once for each signature, while it is traced. What it is to do in each run has
// to be built into its graph: a call that acts at once would act once, and not in each run. So the
// contexts of a trace carry it, and every call with a context either builds graph there or
// refuses.

// Tracing reports whether ctx belongs to a compiled step that is being traced: whether it is the
// context of [ReplicaContext.Context] or [eager.MergeContext.Context], or derived from it. Calls that
// act at once, rather than in each run of the step, refuse such a context with [ErrContext].
func Tracing(ctx context.Context) bool { return mode.Trace(ctx) != nil }

// RefuseTracing returns [ErrContext] if ctx belongs to a compiled step that is being traced.
// Calls that act at once begin with it; instead says what to write in a step.
func RefuseTracing(ctx context.Context, op, instead string) error {
	if !Tracing(ctx) {
		return nil
	}
	return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a compiled step, whose code runs once, while it is traced, and not in each run", Hint: instead}
}
