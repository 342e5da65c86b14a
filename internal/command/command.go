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

// These are the exit codes of all commands. A command may have additional ones.
const (
	OK     = 0
	Failed = 1 // the work failed
	Usage  = 2 // the command line is invalid
)

// These exit codes of sysexits.h request that the process is started again.
const (
	Unavailable = 69 // another process or a service does not respond; all processes should be restarted
	Interrupted = 75 // the work was interrupted and resumes from its checkpoint
)

// Signal reports that a command was canceled by a signal.
type Signal struct {
	Signal syscall.Signal
	// At is the time of the signal.
	At time.Time
}

// Received returns the signal and its time.
func (s *Signal) Received() (os.Signal, time.Time) { return s.Signal, s.At }

// Error returns "interrupted" or "terminated".
func (s *Signal) Error() string {
	if s.Signal == syscall.SIGTERM {
		return "terminated"
	}
	return "interrupted"
}

// Kind returns CancelledError.
func (*Signal) Kind() errkind.Kind { return errkind.CancelledError }

// Code returns the exit code that a shell reports for a process that was killed by the signal, such
// as 130 for SIGINT.
func (s *Signal) Code() int { return 128 + int(s.Signal) }

// Cause returns the signal that canceled ctx. If ctx was not canceled by a signal, it returns
// SIGINT.
func Cause(ctx context.Context) *Signal {
	if s := (*Signal)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return &Signal{Signal: syscall.SIGINT}
}

// UntilSignal returns a context that is canceled by the first SIGINT or SIGTERM, with a *[Signal]
// as the cause. The second signal kills the process. The caller must call stop.
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

// grace is the time for which Main waits after a signal. Work that ignores its context, such as a
// compilation, does not delay the exit further.
const grace = 2 * time.Second

// holdKey is the context key of the number of holds.
type holdKey struct{}

// Hold makes [Main] wait after a signal until release is called. It is for work that stops when its
// context ends, but needs more time for it, such as for a checkpoint. Outside of Main, it has no
// effect.
func Hold(ctx context.Context) (release func()) {
	held, ok := ctx.Value(holdKey{}).(*atomic.Int64)
	if !ok {
		return func() {}
	}
	held.Add(1)
	return sync.OnceFunc(func() { held.Add(-1) })
}

// Main runs a command until it returns or a signal cancels its context, and returns the exit code.
// If the command does not return within two seconds after the signal and has no [Hold], Main
// returns the exit code of the signal.
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
