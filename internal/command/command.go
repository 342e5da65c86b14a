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

// The exit codes that all commands have. A command may have more.
const (
	OK     = 0
	Failed = 1 // the work failed
	Usage  = 2 // the command line makes no sense
)

// The exit codes, of sysexits.h, with which a process asks to be started again.
const (
	Unavailable = 69 // another process or a service does not answer, so all are to start
	Interrupted = 75 // the work was interrupted, and goes on from where it was saved
)

// Signal reports that the work of a command was given up because of a signal to the process.
type Signal struct {
	Signal syscall.Signal
	// At is when it came.
	At time.Time
}

// Received returns the signal and when it came.
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

// Code returns the exit code that a shell gives a process which the signal has ended, such as 130
// for SIGINT.
func (s *Signal) Code() int { return 128 + int(s.Signal) }

// Cause returns the signal that ended ctx. A context that ended otherwise, or has not ended, counts
// as interrupted.
func Cause(ctx context.Context) *Signal {
	if s := (*Signal)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return &Signal{Signal: syscall.SIGINT}
}

// UntilSignal returns a context that ends with the first SIGINT or SIGTERM to the process, by a
// *[Signal]. The second ends the process. stop releases what it takes.
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

// grace is how long a command goes on after a signal: what takes no notice of its context, such as
// a compiler, does not hold the process up.
const grace = 2 * time.Second

// holdKey is that of what counts the work that Main waits for.
type holdKey struct{}

// Hold says that the work under way is ended by its context, and may take longer than a moment for
// it, such as for a checkpoint: after a signal [Main] waits for it until release is called. Outside
// of Main it does nothing.
func Hold(ctx context.Context) (release func()) {
	held, ok := ctx.Value(holdKey{}).(*atomic.Int64)
	if !ok {
		return func() {}
	}
	held.Add(1)
	return sync.OnceFunc(func() { held.Add(-1) })
}

// Main runs the command that this process is, until it ends or a signal ends its context, and
// returns the exit code. A command that has not ended a moment after the signal is left behind,
// unless it asked by [Hold] to be waited for, and the code is the signal's.
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
