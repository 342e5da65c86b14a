package clusterresolver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// maxMetadata bounds one answer of the metadata server, in bytes.
const maxMetadata = 1 << 20

// statusError is an answer of the metadata server that is worth another try. It hides the status
// from the client library, whose own tries would multiply with ours.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("metadata server answered status %d", e.code)
}

var (
	errNoServer  = errkind.New(errkind.NotFoundError, "no metadata server at this address")
	errForeign   = errkind.New(errkind.NotFoundError, "the server does not answer with Metadata-Flavor: Google, so it is not a metadata server")
	errTransient = errkind.New(errkind.UnavailableError, "connection failed")
)

// opaqueError is a failed connection. It cannot be unwrapped, and matches its kind and a context's
// error only: the client library looks for network errors inside to decide on tries of its own.
type opaqueError struct{ kind, cause error }

func (e *opaqueError) Error() string { return e.kind.Error() + ": " + e.cause.Error() }

func (e *opaqueError) Is(target error) bool {
	return target == e.kind ||
		((target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(e.cause, target))
}

// etagKey carries a *string that the transport fills with the answer's ETag.
type etagKey struct{}

func withETag(ctx context.Context, etag *string) context.Context {
	return context.WithValue(ctx, etagKey{}, etag)
}

// metadataTransport stands between the client library and the network: it keeps all tries in one
// place, tells "not on Google Cloud" from "server in trouble", and hands out the ETag, which the
// library's Get does not.
type metadataTransport struct {
	base http.RoundTripper
	// answered is set by the first answer of a metadata server: from then on a failing connection
	// is a failure, not a sign of another kind of machine.
	answered atomic.Bool
}

func newMetadataTransport(base http.RoundTripper) *metadataTransport {
	if base == nil {
		base = &http.Transport{
			// No proxy: the address is link-local.
			DialContext:            (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			IdleConnTimeout:        60 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &metadataTransport{base: base}
}

func (t *metadataTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	res, err := t.base.RoundTrip(req)
	if err != nil {
		if !connected.Load() && !t.answered.Load() {
			return nil, &opaqueError{errNoServer, err}
		}
		return nil, &opaqueError{errTransient, err}
	}
	if res.Header.Get("Metadata-Flavor") == "Google" {
		t.answered.Store(true)
	}
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500:
		res.Body.Close()
		return nil, &statusError{res.StatusCode}
	case res.StatusCode < 400 && res.Header.Get("Metadata-Flavor") != "Google": // also a portal that sends all requests to its own page
		res.Body.Close()
		return nil, errForeign
	}
	if to, err := res.Location(); err == nil && res.StatusCode < 400 && (to.Host != req.URL.Host || to.Scheme != req.URL.Scheme) {
		// The client library would go on with the answer that SameHost refuses.
		res.Body.Close()
		return nil, redirected(to.Host)
	}
	if etag, ok := req.Context().Value(etagKey{}).(*string); ok {
		*etag = res.Header.Get("ETag")
	}
	res.Body = bounded(opaqueBody{res.Body}, maxMetadata)
	return res, nil
}

// opaqueBody hides the network's errors from the client library, as opaqueError says.
type opaqueBody struct{ io.ReadCloser }

func (b opaqueBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &opaqueError{errTransient, err}
	}
	return n, err
}

// cut shortens a text from outside to what an error can repeat.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// maxText bounds a service's own words in an error, in bytes.
const maxText = 400
