package blobstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

const (
	// initialBackoff is the base of the wait before the second attempt. The base doubles with each
	// attempt, up to maxBackoff. Waits are random, so that hosts do not retry at the same time.
	initialBackoff = 100 * time.Millisecond
	maxBackoff     = 10 * time.Second
)

// retry calls f until it succeeds, returns a permanent error, or Options.RetryTimeout has passed.
// Each call has its own context, which the guard cancels if a request stalls.
func (s *Store) retry(ctx context.Context, op, object string, f func(ctx context.Context, g *stallGuard) error) error {
	start := time.Now()
	wait := initialBackoff
	for attempt := 1; ; attempt++ {
		err := ctx.Err()
		if err == nil {
			err = s.attempt(ctx, f)
		}
		if err == nil {
			return nil
		}
		e := &Error{Op: op, Store: s.opts.Name, Object: object, Attempts: attempt, Elapsed: time.Since(start), Err: err}
		if ctx.Err() != nil {
			e.Err = contextError(ctx)
			return e
		}
		e.Reason = s.opts.Service.classify(err)
		e.Hint = s.opts.Service.hint(e.Reason)
		pause := time.Duration(rand.Int64N(int64(wait))) + wait/8
		if !e.Reason.isTemporary() || e.Elapsed+pause > s.opts.RetryTimeout {
			return e
		}
		select {
		case <-ctx.Done():
			e.Reason, e.Hint = Unknown, ""
			e.Err = fmt.Errorf("%w before another attempt; the last attempt: %w", contextError(ctx), err)
			return e
		case <-time.After(pause):
		}
		wait = min(2*wait, maxBackoff)
	}
}

// contextError returns the error of a canceled context, including its cause.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (s *Store) attempt(ctx context.Context, f func(ctx context.Context, g *stallGuard) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &stallGuard{limit: s.opts.StallTimeout, cancel: cancel}
	err := f(ctx, g)
	if err != nil && context.Cause(ctx) == errStalled {
		return fmt.Errorf("%w: %v", errStalled, err) //nolint:errorlint // the guard canceled the context
	}
	return err
}

func (s *Service) hint(r Reason) string {
	if s.Hint != nil {
		if text := s.Hint(r); text != "" {
			return text
		}
	}
	return reasonTable[r].hint
}

// stallGuard cancels a context if a single read, write or request takes longer than limit.
type stallGuard struct {
	limit  time.Duration
	cancel context.CancelCauseFunc
}

// run calls f, and cancels the context if f takes longer than the limit. Some drivers dereference
// fields that a malformed response did not set, such as the date of an object. run returns the
// resulting panic as an error that matches ErrCorrupted.
func (g *stallGuard) run(f func() (int, error)) (n int, err error) {
	t := time.AfterFunc(g.limit, func() { g.cancel(errStalled) })
	defer t.Stop()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("%w: the driver cannot parse the response: %w", ErrCorrupted, p)
		default:
			panic(p)
		}
	}()
	return f()
}

// do is like run, for a function that returns only an error.
func (g *stallGuard) do(f func() error) error {
	_, err := g.run(func() (int, error) { return 0, f() })
	return err
}
