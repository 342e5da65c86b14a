package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheWaitsGrowAndEndWithThePatience compares the waits with the documented ones.
func TestTheWaitsGrowAndEndWithThePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{opts: Options{Name: "gs://bucket", RetryTimeout: DefaultRetryTimeout, StallTimeout: DefaultStallTimeout}}
		start := time.Now()
		var waits []time.Duration
		last := start
		err := s.retry(t.Context(), "put", "x", func(context.Context, *stallGuard) error {
			if now := time.Now(); now != start {
				waits = append(waits, now.Sub(last))
				last = now
			}
			return syscall.ECONNRESET
		})
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, Unavailable, e.Reason)
		assert.Equal(t, len(waits)+1, e.Attempts)
		assert.LessOrEqual(t, e.Elapsed, DefaultRetryTimeout)
		assert.Greater(t, e.Elapsed, DefaultRetryTimeout-maxBackoff-maxBackoff/8)
		most := initialBackoff
		for i, wait := range waits {
			assert.GreaterOrEqual(t, wait, most/8, "wait %d", i)
			assert.LessOrEqual(t, wait, most+most/8, "wait %d", i)
			most = min(2*most, maxBackoff)
		}
	})
}

// TestAnAttemptInWhichNothingMovesIsGivenUp uses a service that never responds.
func TestAnAttemptInWhichNothingMovesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{opts: Options{Name: "gs://bucket", RetryTimeout: DefaultRetryTimeout, StallTimeout: DefaultStallTimeout}}
		start := time.Now()
		err := s.retry(t.Context(), "list", "", func(ctx context.Context, g *stallGuard) error {
			return g.do(func() error { <-ctx.Done(); return ctx.Err() })
		})
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, Stalled, e.Reason)
		assert.Equal(t, 2, e.Attempts, "a minute each")
		assert.InDelta(t, DefaultRetryTimeout.Seconds(), time.Since(start).Seconds(), 1)
		assert.NotErrorIs(t, err, context.Canceled, "which the caller did not do")
	})
}

func TestWhichErrorsAreTriedAgain(t *testing.T) {
	type answered struct {
		error
		status int
	}
	s := &Service{Status: func(err error) int {
		var a answered
		if errors.As(err, &a) {
			return a.status
		}
		return 0
	}}
	for status, want := range map[int]Reason{
		400: InvalidRequest, 401: Unauthenticated, 403: PermissionDenied, 408: Unavailable, 410: Unavailable,
		416: InvalidRequest, 429: Unavailable,
		500: Unavailable, 501: InvalidRequest, 502: Unavailable, 503: Unavailable, 504: Unavailable,
	} {
		assert.Equal(t, want, s.classify(answered{errors.New(http.StatusText(status)), status}), "%d", status)
	}
	for err, want := range map[error]Reason{
		syscall.ECONNREFUSED: Unavailable, syscall.ECONNRESET: Unavailable, syscall.EPIPE: Unavailable,
		io.ErrUnexpectedEOF: Unavailable,
		&url.Error{Op: "Get", URL: "http://x", Err: io.EOF}:                                      Unavailable,
		&url.Error{Op: "Get", URL: "http://x", Err: &net.DNSError{Name: "x", IsNotFound: true}}:  Unknown,
		&url.Error{Op: "Get", URL: "http://x", Err: &net.DNSError{Name: "x", IsTemporary: true}}: Unavailable,
		errors.New("who knows"):                                    Unknown,
		reasonError{syscall.ECONNRESET, Unknown}:                   Unknown,
		ErrCorrupted:                                               Corrupted,
		fmt.Errorf("%w: while", errStalled):                        Stalled,
		answered{errors.New("Provided CRC32C doesn't match"), 400}: Corrupted,
		errors.New("google: could not find default credentials"):   Unauthenticated,
		&url.Error{Op: "Post", URL: "http://x", Err: fmt.Errorf("oauth2: %w", errors.New("reset"))}: Unavailable,
	} {
		assert.Equal(t, want, s.classify(err), "%v", err)
	}
}
