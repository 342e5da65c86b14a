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

// Notice announces that the process must end soon. [Notify] cancels its context with a *Notice as
// the cause.
type Notice struct {
	// Reason is a text such as "SIGTERM" or "the machine is being pre-empted".
	Reason string
	// Signal is the signal that the process received, or nil.
	Signal os.Signal
	// Deadline is the time when the process will be ended; zero if it is not known.
	Deadline time.Time

	cause error // error of a context that did not end by Notify
}

func (n *Notice) Error() string { return errkind.Format("interrupt", n.Reason, nil, "") }

// Unwrap returns context.Canceled if [Notify] canceled the context. Otherwise it returns the error
// and the cause of the context.
func (n *Notice) Unwrap() error { return cmp.Or(n.cause, context.Canceled) }

// Kind returns DeadlineExceededError if the deadline of the context passed, and CancelledError
// otherwise.
func (n *Notice) Kind() errkind.Kind {
	if errors.Is(n.cause, context.DeadlineExceeded) {
		return errkind.DeadlineExceededError
	}
	return errkind.CancelledError
}

// signalCause is a context cause that contains a signal and the time when it was received.
type signalCause interface {
	error
	Received() (os.Signal, time.Time)
}

// FromContext returns the notice that ended a context, or nil if the context has not ended. If
// [Notify] did not end the context, the notice contains the context's cause.
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

// TimeLeft returns the time until the deadline of the notice that ended ctx. It is negative after
// the deadline. known is false if ctx has not ended or the notice has no deadline.
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

// GracePeriod returns [Options].Grace of the [Notify] call that created ctx or a parent of ctx, and
// 30 seconds by default. A save should not take longer.
func GracePeriod(ctx context.Context) time.Duration {
	if grace, ok := ctx.Value(graceKey{}).(time.Duration); ok {
		return grace
	}
	return defaultGrace
}

type graceKey struct{}

// ExitCode is the exit code of a process whose run was interrupted and can resume after a restart:
// 75, which is EX_TEMPFAIL in sysexits.h.
const ExitCode = command.Interrupted

// Error is the error of a loop that ended early because of a notice. It matches the same errors as
// its [Notice].
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

func (e *Error) Unwrap() error { return e.Notice }

func (e *Error) Kind() errkind.Kind { return e.Notice.Kind() }

// ExitCode returns [ExitCode] if the loop can resume. Before the first step it returns the exit
// code of the notice. Without checkpoints it returns 128 plus the signal's number, like a shell, or
// 130 without a signal.
func (e *Error) ExitCode() int {
	switch {
	case e.Unsaved:
		return e.Notice.signalCode()
	case e.Step == 0:
		return e.Notice.ExitCode()
	}
	return ExitCode
}

// exitCoder is implemented by errors of this module that have an exit code.
type exitCoder interface {
	error
	ExitCode() int
	Kind() errkind.Kind
}

// ExitCodeFor returns the exit code of a program for its error:
//   - 0 for nil;
//   - the code of the first error in the chain that has one, such as [ExitCode] of an interrupted
//     run;
//   - 69 for kind UnavailableError or DeadlineExceededError, which means that another process or a
//     service does not respond and all processes must be restarted;
//   - 1 for any other error.
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

// ExitCodeForContext is like [ExitCodeFor], except that it returns [Notice.ExitCode] if ctx has
// ended and err has no exit code. In this case the end of ctx may be the hidden cause of err.
func ExitCodeForContext(ctx context.Context, err error) int {
	var c exitCoder
	if n := FromContext(ctx); err != nil && n != nil && !errors.As(err, &c) {
		return n.ExitCode()
	}
	return ExitCodeFor(err)
}

// ExitCode returns the exit code of a process that ends before there is anything to save. For a
// notice with a deadline it is [ExitCode]. A notice without a deadline is sent by a person, who
// does not want a restart: the code is 128 plus the signal's number, or 130 without a signal.
func (n *Notice) ExitCode() int {
	if n.Deadline.IsZero() {
		return n.signalCode()
	}
	return ExitCode
}

// signalCode returns 128 plus the number of the signal, like a shell, or 130 without a signal.
func (n *Notice) signalCode() int {
	if s, ok := n.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 128 + int(syscall.SIGINT)
}
