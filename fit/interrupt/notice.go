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

// Notice announces that a process must end soon, and why. A *Notice is an error and the cause of a
// context that [Notify] ended.
type Notice struct {
	// Reason is a text such as "SIGTERM" or "the machine is being pre-empted".
	Reason string
	// Signal is the signal that the process received, or nil.
	Signal os.Signal
	// Deadline is the time when the process will be ended; zero if it is not known.
	Deadline time.Time

	cause error // error of a context that did not end by Notify
}

// Error returns a text with the reason.
func (n *Notice) Error() string { return errkind.Format("interrupt", n.Reason, nil, "") }

// Unwrap returns the error and the cause of the context that ended, or context.Canceled for a
// context that [Notify] ended.
func (n *Notice) Unwrap() error { return cmp.Or(n.cause, context.Canceled) }

// Kind returns DeadlineExceededError for a context whose deadline passed, and CancelledError
// otherwise.
func (n *Notice) Kind() errkind.Kind {
	if errors.Is(n.cause, context.DeadlineExceeded) {
		return errkind.DeadlineExceededError
	}
	return errkind.CancelledError
}

// signalCause is a context cause with a signal and its time, such as the cause that the module's
// commands use.
type signalCause interface {
	error
	Received() (os.Signal, time.Time)
}

// FromContext returns the notice that ended a context, or nil if the context has not ended. For a
// context that did not end by [Notify] it returns a notice with the context's cause.
func FromContext(ctx context.Context) *Notice {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	var n *Notice
	var received signalCause
	switch {
	case errors.As(cause, &n):
		return n
	case errors.As(cause, &received):
		s, at := received.Received()
		n = signalNotice(s, at, GracePeriod(ctx))
	default:
		n = &Notice{Reason: cause.Error()}
	}
	n.cause = errors.Join(ctx.Err(), cause)
	return n
}

// TimeLeft returns the time until the deadline of the notice that ended a context. It is negative
// after the deadline. known is false if the context has not ended or the notice has no deadline.
func TimeLeft(ctx context.Context) (remaining time.Duration, known bool) {
	n := FromContext(ctx)
	if n == nil || n.Deadline.IsZero() {
		return 0, false
	}
	return time.Until(n.Deadline), true
}

// defaultGrace is the usual time between SIGTERM and SIGKILL: 30 s in Kubernetes, about 30 s when
// Google Cloud preempts a machine.
const defaultGrace = 30 * time.Second

// GracePeriod returns [Options].Grace of the [Notify] from which a context was derived, or 30
// seconds. A save should not take longer.
func GracePeriod(ctx context.Context) time.Duration {
	if grace, ok := ctx.Value(graceKey{}).(time.Duration); ok {
		return grace
	}
	return defaultGrace
}

type graceKey struct{}

// ExitCode is the exit code of a process whose run was interrupted and can resume when the process
// is restarted. It is 75, EX_TEMPFAIL in sysexits.h.
const ExitCode = command.Interrupted

// Error reports a loop that ended early because of a notice. It matches the same errors as its
// [Notice].
type Error struct {
	// Step is the number of completed steps of the whole run.
	Step int64
	// Directory contains the checkpoint of Step; empty if there is none or it is not known.
	Directory string
	// Unsaved reports that the run has no checkpoints to resume from.
	Unsaved bool
	// Notice is the notice that ended the loop.
	Notice *Notice
}

// Error returns a text with the step, the reason, and how to resume.
func (e *Error) Error() string {
	hint := "restart the process to resume"
	switch {
	case e.Directory != "":
		hint = "its checkpoint is in " + e.Directory + ", resume to continue"
	case e.Unsaved:
		hint = ""
	}
	return errkind.Format("interrupt: stopped after step "+formatStep(e.Step), "", e.Notice, hint)
}

// Unwrap returns the notice.
func (e *Error) Unwrap() error { return e.Notice }

// Kind returns the kind of the notice.
func (e *Error) Kind() errkind.Kind { return e.Notice.Kind() }

// ExitCode returns [ExitCode] if the loop can resume. Before the first step it returns the exit
// code of the notice. Without checkpoints it returns 128 plus the signal's number, as a shell does
// for a process that a signal ended, and 130 without a signal.
func (e *Error) ExitCode() int {
	switch {
	case e.Unsaved:
		return e.Notice.signalCode()
	case e.Step == 0:
		return e.Notice.ExitCode()
	}
	return ExitCode
}

// exitCoder is an error of this module with an exit code.
type exitCoder interface {
	error
	ExitCode() int
	Kind() errkind.Kind
}

// ExitCodeFor returns the exit code of a program's error: 0 for nil; the code of the first error in
// the chain that has one, such as [ExitCode] of an interrupted run or [Notice.ExitCode] of an
// interrupted start; 69 for an error of kind UnavailableError or DeadlineExceededError, which means
// that another process or a service does not respond and all processes must be restarted; and 1 for
// any other error.
func ExitCodeFor(err error) int {
	var c exitCoder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.ExitCode()
	}
	switch errkind.KindOf(err) {
	case errkind.UnavailableError, errkind.DeadlineExceededError:
		return command.Unavailable
	}
	return 1
}

// ExitCodeForContext returns the exit code of a program's error like [ExitCodeFor]. If the
// program's context has ended and the error has no exit code of its own, it returns
// [Notice.ExitCode], because the end of the context may be the hidden cause of the error.
func ExitCodeForContext(ctx context.Context, err error) int {
	var c exitCoder
	if n := FromContext(ctx); err != nil && n != nil && !errors.As(err, &c) {
		return n.ExitCode()
	}
	return ExitCodeFor(err)
}

// ExitCode returns the exit code of a process that the notice ended before there was anything to
// save: [ExitCode] for a notice with a deadline. A notice without a deadline comes from a person,
// who does not want a restart: the code is 128 plus the signal's number, and 130 without a signal.
func (n *Notice) ExitCode() int {
	if n.Deadline.IsZero() {
		return n.signalCode()
	}
	return ExitCode
}

// signalCode returns the code that a shell reports for a process which a signal ended.
func (n *Notice) signalCode() int {
	if s, ok := n.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 128 + int(syscall.SIGINT)
}
