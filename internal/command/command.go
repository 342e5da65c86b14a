package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Exit codes of all commands. A command may define additional codes.
const (
	OK     = 0
	Failed = 1 // the work failed
	Usage  = 2 // the command line is invalid
)

// Exit codes from sysexits.h that request a restart of the process.
const (
	Unavailable = 69 // another process or a service does not respond; all processes should be restarted
	Interrupted = 75 // the work was interrupted and resumes from its checkpoint
)

// Signal is the cancellation cause of a context that a signal canceled. It implements error.
type Signal struct {
	Signal syscall.Signal
	// At is the time at which the signal was received.
	At time.Time
}

// Received returns the signal and the time at which it was received.
func (s *Signal) Received() (os.Signal, time.Time) { return s.Signal, s.At }

// Error returns "interrupted" or "terminated".
func (s *Signal) Error() string {
	if s.Signal == syscall.SIGTERM {
		return "terminated"
	}
	return "interrupted"
}

// Kind returns errkind.CancelledError.
func (*Signal) Kind() errkind.Kind { return errkind.CancelledError }

// Code returns the exit code that a shell reports for a process killed by the signal, such as 130
// for SIGINT.
func (s *Signal) Code() int { return 128 + int(s.Signal) }

// Cause returns the signal that canceled ctx. It returns SIGINT if ctx was not canceled by a signal.
func Cause(ctx context.Context) *Signal {
	if s := (*Signal)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return &Signal{Signal: syscall.SIGINT}
}

// UntilSignal returns a context that the first SIGINT or SIGTERM cancels, with a *[Signal] as the
// cause. A second signal kills the process. The caller must call stop to release resources.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(&Signal{s.(syscall.Signal), time.Now()})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// grace is how long Main waits for the command to return after a signal. Work that ignores its
// context, such as a compilation, delays the exit only by this time.
const grace = 2 * time.Second

// holdKey is the context key for the number of calls of Hold that are not released yet.
type holdKey struct{}

// Hold makes [Main] wait after a signal until release is called. Use it for work that may continue
// for more than two seconds after its context is canceled, such as saving a checkpoint. Outside of
// Main, Hold has no effect.
func Hold(ctx context.Context) (release func()) {
	held, ok := ctx.Value(holdKey{}).(*atomic.Int64)
	if !ok {
		return func() {}
	}
	held.Add(1)
	return sync.OnceFunc(func() { held.Add(-1) })
}

// Main runs a command with a context that a signal cancels, and returns the exit code. If the
// command does not return within two seconds after the signal and has no active [Hold], Main
// returns the exit code of the signal without waiting.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) int {
	held := new(atomic.Int64)
	ctx, stop := UntilSignal(context.WithValue(context.Background(), holdKey{}, held))
	defer stop()
	code := make(chan int, 1)
	go func() { code <- run(ctx, os.Args[1:], os.Stdout, os.Stderr) }()
	select {
	case c := <-code:
		return c
	case <-ctx.Done():
	}
	for {
		select {
		case c := <-code:
			return c
		case <-time.After(grace):
			if held.Load() == 0 {
				return Cause(ctx).Code()
			}
		}
	}
}
