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
		s := &Store{opts: Options{Place: "gs://bucket", Patience: DefaultPatience, Stall: DefaultStall}}
		start := time.Now()
		var waits []time.Duration
		last := start
		err := s.again(t.Context(), "put", "x", func(context.Context, *guard) error {
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
		assert.LessOrEqual(t, e.Passed, DefaultPatience)
		assert.Greater(t, e.Passed, DefaultPatience-longestWait-longestWait/8)
		most := firstWait
		for i, wait := range waits {
			assert.GreaterOrEqual(t, wait, most/8, "wait %d", i)
			assert.LessOrEqual(t, wait, most+most/8, "wait %d", i)
			most = min(2*most, longestWait)
		}
	})
}

// TestAnAttemptInWhichNothingMovesIsGivenUp uses a service that never responds.
func TestAnAttemptInWhichNothingMovesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{opts: Options{Place: "gs://bucket", Patience: DefaultPatience, Stall: DefaultStall}}
		start := time.Now()
		err := s.again(t.Context(), "list", "", func(ctx context.Context, g *guard) error {
			return g.do(func() error { <-ctx.Done(); return ctx.Err() })
		})
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, Stalled, e.Reason)
		assert.Equal(t, 2, e.Attempts, "a minute each")
		assert.InDelta(t, DefaultPatience.Seconds(), time.Since(start).Seconds(), 1)
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
		400: Refused, 401: Unauthenticated, 403: Denied, 408: Unavailable, 410: Unavailable, 416: Refused, 429: Unavailable,
		500: Unavailable, 501: Refused, 502: Unavailable, 503: Unavailable, 504: Unavailable,
	} {
		assert.Equal(t, want, s.reasonOf(answered{errors.New(http.StatusText(status)), status}), "%d", status)
	}
	for err, want := range map[error]Reason{
		syscall.ECONNREFUSED: Unavailable, syscall.ECONNRESET: Unavailable, syscall.EPIPE: Unavailable, io.ErrUnexpectedEOF: Unavailable,
		&url.Error{Op: "Get", URL: "http://x", Err: io.EOF}:                                      Unavailable,
		&url.Error{Op: "Get", URL: "http://x", Err: &net.DNSError{Name: "x", IsNotFound: true}}:  Other,
		&url.Error{Op: "Get", URL: "http://x", Err: &net.DNSError{Name: "x", IsTemporary: true}}: Unavailable,
		errors.New("who knows"):             Other,
		known{syscall.ECONNRESET, Other}:    Other,
		ErrDamaged:                          Damaged,
		fmt.Errorf("%w: while", errStalled): Stalled,
		answered{errors.New("Provided CRC32C doesn't match"), 400}:                                  Damaged,
		errors.New("google: could not find default credentials"):                                    Unauthenticated,
		&url.Error{Op: "Post", URL: "http://x", Err: fmt.Errorf("oauth2: %w", errors.New("reset"))}: Unavailable,
	} {
		assert.Equal(t, want, s.reasonOf(err), "%v", err)
	}
}
