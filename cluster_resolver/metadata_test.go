package clusterresolver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// v4Values returns the metadata of worker 2 of a v4-32, in the format of "About VM metadata".
func v4Values() map[string]string {
	return map[string]string{
		"instance/attributes/accelerator-type":         "v4-32",
		"instance/attributes/agent-worker-number":      "2",
		"instance/attributes/worker-network-endpoints": "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2,unknown:unknown:10.0.0.3,unknown:unknown:10.0.0.4",
		"instance/attributes/tpu-env":                  tpuEnvV4,
		"instance/zone":                                "projects/123456789012/zones/us-central2-b",
		"project/project-id":                           "my-project",
		"instance/preempted":                           "FALSE",
		"instance/maintenance-event":                   "NONE",
	}
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func answer(code int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(code)
		w.Write([]byte(body))
	}
}

func TestMetadataFaults(t *testing.T) {
	const key = "instance/attributes/accelerator-type"
	hang := func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true }
	first := func(n int, f func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, _ *http.Request, i int) bool {
			if i <= n {
				f(w)
			}
			return i <= n
		}
	}
	for name, c := range map[string]struct {
		fault    func(http.ResponseWriter, *http.Request, int) bool
		ctx      func(context.Context) (context.Context, context.CancelFunc)
		want     string // value, or part of the error
		err      error  // error to match, or nil
		ok       bool
		hits     int
		min, max time.Duration // duration on the fake clock
	}{
		"healthy": {ok: true, want: "v4-32", hits: 1},
		"500 then 200": {fault: first(2, answer(500, "oops")), ok: true, want: "v4-32", hits: 3, min: 150 * time.Millisecond,
			max: 300 * time.Millisecond},
		"429 then 200": {fault: first(1, answer(429, "")), ok: true, want: "v4-32", hits: 2, min: 50 * time.Millisecond,
			max: 100 * time.Millisecond},
		"500 for ever": {fault: first(99, answer(503, "")), want: "metadata server returned status 503", hits: 5,
			min: 750 * time.Millisecond, max: 1500 * time.Millisecond},
		"404": {fault: first(99, answer(404, "")), want: "not defined", err: ErrNotFound, hits: 1},
		"403": {fault: first(99, answer(403, "no")), want: "403", hits: 1},
		"slow for ever": {fault: hang, want: "failed after 5 attempts", err: context.DeadlineExceeded, hits: 5,
			min: 15 * time.Second, max: 17 * time.Second},
		"slow then well": {fault: func(w http.ResponseWriter, r *http.Request, n int) bool {
			return n == 1 && hang(w, r, n)
		}, ok: true, want: "v4-32", hits: 2, min: 3 * time.Second, max: 3200 * time.Millisecond},
		"connection cut": {fault: first(1, func(w http.ResponseWriter) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		}), ok: true, want: "v4-32", hits: 2, max: time.Second},
		"cut in the body": {fault: first(1, func(w http.ResponseWriter) {
			c, b, _ := w.(http.Hijacker).Hijack()
			b.WriteString("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 100\r\n\r\nv4")
			b.Flush()
			c.Close()
		}), ok: true, want: "v4-32", hits: 2, max: time.Second},
		"endless body": {fault: first(99, answer(200, strings.Repeat("x", 2<<20))), want: "longer than 1 MiB", hits: 1},
		"not metadata": {fault: first(99, func(w http.ResponseWriter) { w.Write([]byte("<html>")) }),
			want: "not a metadata server", err: ErrNotDetected, hits: 1},
		"caller's deadline": {fault: hang, want: "deadline", err: context.DeadlineExceeded, hits: 1, min: time.Second,
			max: time.Second,
			ctx: func(p context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(p, time.Second)
			}},
		"deadline in a pause": {fault: first(99, answer(500, "")), want: "last failure: ", err: context.DeadlineExceeded,
			hits: 1, min: 40 * time.Millisecond, max: 40 * time.Millisecond,
			ctx: func(p context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(p, 40*time.Millisecond)
			}},
		"cancelled": {fault: hang, want: "canceled", err: context.Canceled, hits: 1, min: time.Second, max: time.Second,
			ctx: func(p context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(p)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMetadataServer(v4Values())
				s.fault = c.fault
				client := NewMetadataClient(MetadataOptions{Transport: servePipe(t, s)})
				ctx, cancel := context.WithCancel(t.Context())
				if c.ctx != nil {
					ctx, cancel = c.ctx(t.Context())
				}
				defer cancel()
				start := time.Now()
				got, err := client.Get(ctx, key)
				took := time.Since(start)
				if c.ok {
					require.NoError(t, err)
					assert.Equal(t, c.want, got)
				} else {
					var me *MetadataError
					require.ErrorAs(t, err, &me)
					assert.Equal(t, key, me.Key)
					assert.ErrorContains(t, err, c.want)
					if c.err != nil {
						assert.ErrorIs(t, err, c.err)
					}
					assert.Equal(t, c.err == ErrNotDetected, errors.Is(err, ErrNotDetected))
				}
				assert.Equal(t, c.hits, s.count(key), "requests")
				assert.GreaterOrEqual(t, took, c.min)
				if c.max > 0 {
					assert.LessOrEqual(t, took, c.max)
				}
			})
		})
	}
}

func TestMalformedMetadataIsParseError(t *testing.T) {
	for key, garbage := range map[string]string{
		"instance/attributes/tpu-env":                  "\x00\xff{]",
		"instance/attributes/worker-network-endpoints": "{\"a\":1}",
		"instance/attributes/agent-worker-number":      "two",
	} {
		values := v4Values()
		values[key] = garbage
		_, err := TPUVM{Metadata: NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(values))})}.Resolve(
			t.Context())
		var pe *ParseError
		require.ErrorAs(t, err, &pe, key)
		assert.False(t, errors.Is(err, ErrNotDetected))
	}
}
