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

// Errors match these variables with errors.Is.
var (
	// ErrClosed reports the use of a closed strategy, function, value or variable.
	ErrClosed = errkind.New(errkind.RuntimeError, "strategy: the object is closed")
	// ErrContext reports a call in the wrong context: a cross-replica call in replica code, a
	// replica call outside it, or an eager call while a step is traced. The error is an *[Error]
	// whose Hint names the right place for the call.
	ErrContext = errkind.New(errkind.RuntimeError, "strategy: the wrong context")
	// ErrOtherStrategy reports an object of another strategy, such as a value or a variable.
	ErrOtherStrategy = fault.ErrOtherStrategy
	// ErrRemote reports a read of a tensor or a shard that only another process has.
	ErrRemote = errkind.New(errkind.ValueError, "strategy: another process holds it")
	// ErrOutOfStep reports that the processes of a job wait for each other in different calls. The
	// error names the call of each process, and all processes receive it.
	ErrOutOfStep = errkind.New(errkind.RuntimeError, "strategy: the processes are out of step")
	// ErrAheadOfTime reports a call that needs devices, such as a run, on an ahead-of-time
	// strategy. It also matches errors.ErrUnsupported.
	ErrAheadOfTime error = &Error{Op: "strategy: the slice is not here", Match: errors.ErrUnsupported}
)

var (
	errStrategyClosed = newClosedError("create a new one with New, or close it after its last call", "the strategy")
	errZeroStrategy   = &Error{Op: "strategy", Reason: "the strategy is a zero value", Match: ErrClosed,
		Hint: "create it with New"}
)

// newClosedError returns an error that matches [ErrClosed]. The name of the closed object is
// formatted from object and args.
func newClosedError(hint, object string, args ...any) error {
	return &Error{Op: "strategy", Reason: fmt.Sprintf(object, args...) + " is closed", Match: ErrClosed, Hint: hint}
}

// asClosedError makes err match [ErrClosed] if the cause is a buffer that was closed during the
// call.
func asClosedError(err error) error {
	if errors.Is(err, pjrt.ErrClosed) && !errors.Is(err, ErrClosed) {
		return &Error{Op: "strategy", Reason: "an argument was closed during the call", Match: ErrClosed, Err: err}
	}
	return err
}

// ArgumentError reports that a step function does not accept an argument.
type ArgumentError struct {
	// Function is the name of the step function, and Argument the argument's position, from 0. Path is the
	// position in the nests of a [nest.Function], such as args[0].Images; it is empty for other functions.
	Function string
	Argument int
	Path     string
	// Reason describes the problem, and Hint the correction. Err is the cause, or nil.
	Reason, Hint string
	Err          error

	// rows is set if the numbers of rows differ between arguments. Reason is then a predicate, such
	// as "has 8 rows".
	rows bool
}

func (e *ArgumentError) Error() string {
	where := e.Path
	if where == "" {
		where = fmt.Sprintf("argument %d", e.Argument)
	}
	if e.rows {
		return errkind.Format(fmt.Sprintf("strategy: run %q: %s %s", e.Function, where, e.Reason), "", nil, e.Hint)
	}
	return errkind.Format("strategy: "+e.Function+": "+where, e.Reason, e.Err, e.Hint)
}

func (e *ArgumentError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, or ValueError if there is no cause.
func (e *ArgumentError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.ValueError) }

// TraceError reports that a step function panicked while it was traced. GoMLX's graph functions and
// the functions of this module report errors in a step by a panic. The strategy and the function
// remain usable.
type TraceError struct {
	// Function is the name of the step function. Where is the line of the step's code, such as
	// "model.go:12", or "" if it is not known. Err is the value of the panic.
	Function string
	Where    string
	Err      error
}

func (e *TraceError) Error() string {
	where := e.Where
	if where != "" {
		where = "at " + where
	}
	return errkind.Format("strategy: tracing "+e.Function, where, e.Err, "")
}

func (e *TraceError) Unwrap() error { return e.Err }

func (e *TraceError) Kind() errkind.Kind { return errkind.KindOf(e.Err) }

// OptionError reports an invalid option of [New]. Its kind is ValueError.
type OptionError struct {
	Option, Reason string
	Err            error
}

func (e *OptionError) Error() string {
	return errkind.Format("strategy: option "+e.Option, e.Reason, e.Err, "")
}

func (e *OptionError) Unwrap() error { return e.Err }

func (e *OptionError) Kind() errkind.Kind { return errkind.ValueError }

// MismatchError reports that the processes of a job differ in data that must be the same on all of
// them, such as the program of a step. Its kind is ValueError.
type MismatchError struct {
	// What names the data, such as `program "train_step"`. Texts describe it, by process.
	What  string
	Texts []string
	// Differing lists the processes whose text differs from the most frequent text, or from the
	// text of process 0 if several texts are equally frequent.
	Differing []int
}

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
	fmt.Fprintf(&has, "%s has %s", formatList("process", same), e.Texts[same[0]])
	return errkind.Format("strategy: the processes differ in "+e.What, has.String(), nil,
		"start the same program with the same options and data sizes on each")
}

func (e *MismatchError) Kind() errkind.Kind { return errkind.ValueError }

func formatList(noun string, list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("%s %d", noun, list[0])
	}
	return fmt.Sprintf("each of %ses %s", noun, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "),
		"[]"))
}

// newOutOfStepError returns an error for processes that wait in different calls. It lists the call
// of each process.
func newOutOfStepError(calls []string) error {
	where := make([]string, len(calls))
	for i, call := range calls {
		where[i] = fmt.Sprintf("process %d is at %s", i, call)
	}
	return &Error{Match: ErrOutOfStep, Reason: strings.Join(where, ", "),
		Hint: "make the same calls in the same order on each"}
}

// Error is the type of most errors. It contains the operation, the problem, a suggested correction,
// the kind and the cause.
type Error = errkind.Fault

// panicLocation returns the line of the user's code that panicked, such as "model.go:12". This is
// the innermost stack frame outside the libraries. It returns "" if the stack has no such frame.
// The function that recovers the panic must call panicLocation directly.
func panicLocation() string {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		switch {
		case !more || strings.HasSuffix(frame.Function, "strategy.(*Function).lower"):
			return ""
		case !usercode.IsLibrary(frame):
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
}

// A step function runs only while it is traced, so an eager call in it would not be part of each run. The
// context of a trace therefore identifies the trace, and eager calls return an error for it.

// Tracing reports whether ctx belongs to a compiled step that is being traced. This is true for the
// result of [ReplicaContext.Context] and [eager.MergeContext.Context], and for contexts that are
// derived from it. Eager calls return [ErrContext] for these contexts.
func Tracing(ctx context.Context) bool { return mode.Trace(ctx) != nil }

// RefuseTracing returns an error that matches [ErrContext] if [Tracing] is true for ctx. The
// parameter instead is a hint for the user: the code to write in a compiled step.
func RefuseTracing(ctx context.Context, op, instead string) error {
	if !Tracing(ctx) {
		return nil
	}
	if err := refuseStale(ctx, op); err != nil {
		return err
	}
	return &Error{Match: ErrContext, Op: "strategy: " + op,
		Reason: "called in a compiled step, whose code runs once, while it is traced, and not in each run", Hint: instead}
}

// refuseStale returns an error that matches [ErrContext] if ctx belongs to a trace that has ended.
func refuseStale(ctx context.Context, op string) error {
	if rc, _ := mode.Trace(ctx).(*ReplicaContext); rc == nil || !rc.ended {
		return nil
	}
	return &Error{Match: ErrContext, Op: "strategy: " + op,
		Reason: "its context belongs to a step that has already been traced",
		Hint:   "use the context of ReplicaContext.Context only inside the step function"}
}
