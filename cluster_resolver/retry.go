package clusterresolver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Retry configures how failed network calls are repeated. The context of the caller limits all
// attempts together.
type Retry struct {
	// Attempts is the maximum number of attempts. 0 means 5.
	Attempts int
	// Timeout is the timeout of one attempt. 0 means 3 seconds.
	Timeout time.Duration
	// Base is the pause after the first failure; 0 means 100 milliseconds. Each further pause is
	// twice as long, up to Max; 0 means 5 seconds. Each pause is randomly shortened by up to a
	// half, so that the hosts of a slice do not send requests at the same time.
	Base, Max time.Duration
	// Sleep waits between attempts, and returns ctx.Err() if ctx is done. If nil, a timer is used.
	Sleep func(ctx context.Context, d time.Duration) error
}

func (r Retry) withDefaults() Retry {
	if r.Attempts <= 0 {
		r.Attempts = 5
	}
	if r.Timeout <= 0 {
		r.Timeout = 3 * time.Second
	}
	if r.Base <= 0 {
		r.Base = 100 * time.Millisecond
	}
	if r.Max <= 0 {
		r.Max = 5 * time.Second
	}
	if r.Sleep == nil {
		r.Sleep = sleep
	}
	return r
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// backoff returns the pause after the failure with the given number, counted from 0. The fields of
// r must already have their default values.
func (r Retry) backoff(n int) time.Duration {
	d := r.Max
	if n < 30 && r.Base<<n < r.Max && r.Base<<n > 0 {
		d = r.Base << n
	}
	return d - rand.N(d/2+1)
}

// retryError returns the error of do after the last attempt. cause is the error of the context, or
// the last failure if the context has not ended. The message contains the last failure in both
// cases.
func retryError(op string, attempts int, cause, last error) error {
	reason := fmt.Sprintf("failed after %d attempts", attempts)
	if last != nil && last != cause {
		reason += fmt.Sprintf(" (last failure: %v)", last)
	}
	return &errkind.Fault{Op: op, Reason: reason, Err: cause, Class: errkind.KindOr(cause, errkind.UnavailableError)}
}

// do calls f until it succeeds. It stops if an error is not retryable, all attempts are used, or
// ctx is done. If ctx is done, the error matches ctx.Err().
func (r Retry) do(ctx context.Context, op string, retryable func(error) bool, f func(context.Context) error) error {
	r = r.withDefaults()
	var last error
	for n := range r.Attempts {
		if n > 0 {
			if err := r.Sleep(ctx, r.backoff(n-1)); err != nil {
				return retryError(op, n, err, last)
			}
		}
		callCtx, cancel := context.WithTimeout(ctx, r.Timeout)
		err := f(callCtx)
		cancel()
		if err == nil {
			return nil
		}
		if ctxErr := ctx.Err(); ctxErr != nil {
			return retryError(op, n+1, ctxErr, err)
		}
		if !retryable(err) {
			return err
		}
		last = err
	}
	return retryError(op, r.Attempts, last, last)
}
