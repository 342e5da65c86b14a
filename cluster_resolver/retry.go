package clusterresolver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Retry says how often and how fast a failed network call is repeated. The zero value is the
// default. The caller's context bounds all attempts together.
type Retry struct {
	// Attempts is the largest number of calls; 0 stands for 5.
	Attempts int
	// Timeout bounds one call; 0 stands for 3 s.
	Timeout time.Duration
	// Base is the pause after the first failure; 0 stands for 100 ms. Each further pause is twice
	// as long, up to Max; 0 stands for 5 s. Each pause is cut at random by up to a half, so that
	// the hosts of a slice do not call in step.
	Base, Max time.Duration
	// Sleep waits between calls, and returns early with ctx's error. Nil stands for a timer.
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

// pause is the wait after failure number n, from 0. It needs defaults filled in.
func (r Retry) pause(n int) time.Duration {
	d := r.Max
	if n < 30 && r.Base<<n < r.Max && r.Base<<n > 0 {
		d = r.Base << n
	}
	return d - rand.N(d/2+1)
}

// gaveUp is the error of a call that failed in all its attempts. The cause is the context's error if
// that ended the attempts, and otherwise the last failure, which errors.Is does not find in the first
// case: it says nothing about the server.
func gaveUp(op string, attempts int, cause, last error) error {
	reason := fmt.Sprintf("failed after %d attempts", attempts)
	if last != nil && last != cause {
		reason += fmt.Sprintf(" (last failure: %v)", last)
	}
	return &errkind.Fault{Op: op, Reason: reason, Err: cause, Class: errkind.Or(cause, errkind.UnavailableError)}
}

// do calls f until it succeeds, fails with an error that again rejects, the attempts are used up or
// ctx ends. When ctx ends its error is the one that matches.
func (r Retry) do(ctx context.Context, op string, again func(error) bool, f func(context.Context) error) error {
	r = r.withDefaults()
	var last error
	for n := range r.Attempts {
		if n > 0 {
			if err := r.Sleep(ctx, r.pause(n-1)); err != nil {
				return gaveUp(op, n, err, last)
			}
		}
		call, cancel := context.WithTimeout(ctx, r.Timeout)
		err := f(call)
		cancel()
		if err == nil {
			return nil
		}
		if ended := ctx.Err(); ended != nil {
			return gaveUp(op, n+1, ended, err)
		}
		if !again(err) {
			return err
		}
		last = err
	}
	return gaveUp(op, r.Attempts, last, last)
}
