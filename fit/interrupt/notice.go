package interrupt

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// Notice says that a process is to end soon, and why. As an error, a pointer to it, it is the cause
// of a context that [Notify] ended.
type Notice struct {
	// Reason says why, such as "SIGTERM" or "the machine is being pre-empted".
	Reason string
	// Signal is the signal that the process got, or nil.
	Signal os.Signal
	// Deadline is when the process will be ended; zero is not known.
	Deadline time.Time

	cause error // of a context that ended in another way than by Notify
}

// Error returns the reason.
func (n *Notice) Error() string { return errkind.Text("interrupt", n.Reason, nil, "") }

// Unwrap returns the error of the context that ended, and its cause: context.Canceled for one that
// [Notify] ended.
func (n *Notice) Unwrap() error { return cmp.Or(n.cause, context.Canceled) }

// Kind returns CancelledError, or DeadlineExceededError for a context whose time was over.
func (n *Notice) Kind() errkind.Kind {
	if errors.Is(n.cause, context.DeadlineExceeded) {
		return errkind.DeadlineExceededError
	}
	return errkind.CancelledError
}

// signalCause is a cause that tells of a signal and when it came, as that of the module's commands.
type signalCause interface {
	error
	Received() (os.Signal, time.Time)
}

// Of returns the notice that ended a context, and nil for a context that has not ended. One that
// ended in another way than by [Notify] has a notice of its cause.
func Of(ctx context.Context) *Notice {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	var n *Notice
	var r signalCause
	switch {
	case errors.As(cause, &n):
		return n
	case errors.As(cause, &r):
		s, at := r.Received()
		n = signalled(s, at, Grace(ctx))
	default:
		n = &Notice{Reason: cause.Error()}
	}
	n.cause = errors.Join(ctx.Err(), cause)
	return n
}

// Left returns the time until the deadline of the notice that ended a context, negative after it.
// It is not known for a context that has not ended, or without a deadline.
func Left(ctx context.Context) (left time.Duration, known bool) {
	n := Of(ctx)
	if n == nil || n.Deadline.IsZero() {
		return 0, false
	}
	return time.Until(n.Deadline), true
}

// defaultGrace is what supervisors give a process between SIGTERM and SIGKILL: Kubernetes 30 s,
// Google Cloud about 30 s when it pre-empts a machine.
const defaultGrace = 30 * time.Second

// Grace returns [Options].Grace of the [Notify] that a context came from: what a save should take
// at most. Without one it is 30 seconds.
func Grace(ctx context.Context) time.Duration {
	if grace, ok := ctx.Value(graceKey{}).(time.Duration); ok {
		return grace
	}
	return defaultGrace
}

type graceKey struct{}

// ExitCode is the exit code of a process whose run was interrupted and can be gone on with: start
// it again. It is 75, EX_TEMPFAIL of sysexits.h.
const ExitCode = command.Interrupted

// Error reports a loop that was ended before its time. It matches what [Notice] does.
type Error struct {
	// Step is the number of steps that were taken, of the whole run.
	Step int64
	// Directory is where the checkpoint of these steps is; empty if there is none, or it is not known.
	Directory string
	// Unsaved says that there are no checkpoints to go on from.
	Unsaved bool
	// Notice says why.
	Notice *Notice
}

// Error names the step, the reason, and what to go on from.
func (e *Error) Error() string {
	hint := "start the process again to go on"
	switch {
	case e.Directory != "":
		hint = "its checkpoint is in " + e.Directory + ", resume to go on"
	case e.Unsaved:
		hint = ""
	}
	return errkind.Text("interrupt: stopped after step "+number(e.Step), "", e.Notice, hint)
}

// Unwrap returns the notice.
func (e *Error) Unwrap() error { return e.Notice }

// Kind returns the notice's kind.
func (e *Error) Kind() errkind.Kind { return e.Notice.Kind() }

// ExitCode returns [ExitCode]: started again the loop goes on. Before the first step it is that of the
// notice. Without checkpoints it is 128 and the signal's number, as a shell has it for a process which
// a signal has ended, and 130 if there was no signal.
func (e *Error) ExitCode() int {
	switch {
	case e.Unsaved:
		return e.Notice.signalCode()
	case e.Step == 0:
		return e.Notice.ExitCode()
	}
	return ExitCode
}

// coder is an error of this module that has an exit code.
type coder interface {
	error
	ExitCode() int
	Kind() errkind.Kind
}

// Code returns the exit code of a program's error: 0 for nil; that of the first error within it that
// has one, such as [ExitCode] of an interrupted run, or [Notice.ExitCode] of a start that a notice
// ended; 69 for one of kind UnavailableError or DeadlineExceededError, as another process or a
// service does not answer, so that all processes are to start again; and 1 for any other.
func Code(err error) int {
	var c coder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.ExitCode()
	}
	switch errkind.Of(err) {
	case errkind.UnavailableError, errkind.DeadlineExceededError:
		return command.Unavailable
	}
	return 1
}

// CodeContext returns the exit code of a program's error as [Code] does, and where the context of the
// program has ended, [Notice.ExitCode] in place of 1: what fails then need not say why.
func CodeContext(ctx context.Context, err error) int {
	var c coder
	if n := Of(ctx); err != nil && n != nil && !errors.As(err, &c) {
		return n.ExitCode()
	}
	return Code(err)
}

// ExitCode returns the exit code of a process that the notice ended before it had anything to save:
// [ExitCode], as nothing is lost, and without a deadline 130, as after SIGINT: a person wants no other
// start.
func (n *Notice) ExitCode() int {
	if n.Deadline.IsZero() {
		return n.signalCode()
	}
	return ExitCode
}

// signalCode is the code that a shell gives a process which a signal has ended.
func (n *Notice) signalCode() int {
	if s, ok := n.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 128 + int(syscall.SIGINT)
}
