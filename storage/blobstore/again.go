package blobstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

const (
	// firstWait is the base of the wait before the second attempt. The base doubles with each
	// attempt, up to longestWait. Waits are random, so that hosts do not retry at the same time.
	firstWait   = 100 * time.Millisecond
	longestWait = 10 * time.Second
)

// again calls f until it succeeds, returns a permanent error, or Options.Patience is over. Each
// call of f has its own context, which the guard cancels if a request stalls.
func (s *Store) again(ctx context.Context, op, object string, f func(ctx context.Context, g *guard) error) error {
	start := time.Now()
	wait := firstWait
	for attempt := 1; ; attempt++ {
		err := ctx.Err()
		if err == nil {
			err = s.once(ctx, f)
		}
		if err == nil {
			return nil
		}
		e := &Error{Op: op, Place: s.opts.Place, Object: object, Attempts: attempt, Passed: time.Since(start), Err: err}
		if ctx.Err() != nil {
			e.Err = ended(ctx)
			return e
		}
		e.Reason = s.opts.Service.reasonOf(err)
		e.Hint = s.opts.Service.hint(e.Reason)
		pause := time.Duration(rand.Int64N(int64(wait))) + wait/8
		if !e.Reason.again() || e.Passed+pause > s.opts.Patience {
			return e
		}
		select {
		case <-ctx.Done():
			e.Reason, e.Hint = Other, ""
			e.Err = fmt.Errorf("%w, before another attempt; the last: %w", ended(ctx), err)
			return e
		case <-time.After(pause):
		}
		wait = min(2*wait, longestWait)
	}
}

// ended returns the error of a canceled context, with its cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (s *Store) once(ctx context.Context, f func(ctx context.Context, g *guard) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &guard{limit: s.opts.Stall, cancel: cancel}
	err := f(ctx, g)
	if err != nil && context.Cause(ctx) == errStalled {
		return fmt.Errorf("%w: %v", errStalled, err) //nolint:errorlint // the error is that of the context which the guard ended
	}
	return err
}

func (s *Service) hint(r Reason) string {
	if s.Hint != nil {
		if text := s.Hint(r); text != "" {
			return text
		}
	}
	return reasons[r].hint
}

// guard cancels a context if one call exceeds the limit.
type guard struct {
	limit  time.Duration
	cancel context.CancelCauseFunc
}

// during runs a call and cancels the context if it exceeds the limit. Some drivers dereference
// fields that a malformed response did not set, such as the date of an object. The resulting panic
// is returned as an error that matches ErrDamaged.
func (g *guard) during(call func() (int, error)) (n int, err error) {
	t := time.AfterFunc(g.limit, func() { g.cancel(errStalled) })
	defer t.Stop()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("%w: the driver cannot read the answer: %w", ErrDamaged, p)
		default:
			panic(p)
		}
	}()
	return call()
}

// do runs a call that returns only an error, like during.
func (g *guard) do(call func() error) error {
	_, err := g.during(func() (int, error) { return 0, call() })
	return err
}
