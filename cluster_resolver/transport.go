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

// maxMetadata is the maximum size of a response of the metadata server in bytes.
const maxMetadata = 1 << 20

// statusError is a temporary HTTP error of the metadata server. It hides the HTTP status from the
// client library, because the library would otherwise retry in addition to this package.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("metadata server returned status %d", e.code)
}

var (
	errNoServer    = errkind.New(errkind.NotFoundError, "no metadata server at this address")
	errNotMetadata = errkind.New(errkind.NotFoundError,
		"the response has no header Metadata-Flavor: Google, so the server is not a metadata server")
	errConnection = errkind.New(errkind.UnavailableError, "connection failed")
)

// connectionError reports a failed connection. It matches only its kind and context errors. It has no
// Unwrap method, because the client library would retry network errors that it finds by unwrapping.
type connectionError struct{ kind, cause error }

func (e *connectionError) Error() string { return e.kind.Error() + ": " + e.cause.Error() }

func (e *connectionError) Is(target error) bool {
	return target == e.kind ||
		((target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(e.cause, target))
}

// etagKey is the context key of a *string. The transport stores the ETag of the response in this
// string.
type etagKey struct{}

func withETag(ctx context.Context, etag *string) context.Context {
	return context.WithValue(ctx, etagKey{}, etag)
}

// metadataTransport is the HTTP transport for the client library. It prevents retries by the
// library, distinguishes a missing metadata server from a failing one, and provides the ETag of a
// response, which the library's Get does not return.
type metadataTransport struct {
	base http.RoundTripper
	// hasResponded is true after the first response of a metadata server. From then on, connection
	// errors are temporary failures and do not mean that there is no metadata server.
	hasResponded atomic.Bool
}

func newMetadataTransport(base http.RoundTripper) *metadataTransport {
	if base == nil {
		base = &http.Transport{
			// Without a proxy, because the address is link-local.
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
		if !connected.Load() && !t.hasResponded.Load() {
			return nil, &connectionError{errNoServer, err}
		}
		return nil, &connectionError{errConnection, err}
	}
	if res.Header.Get("Metadata-Flavor") == "Google" {
		t.hasResponded.Store(true)
	}
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500:
		res.Body.Close()
		return nil, &statusError{res.StatusCode}
	case res.StatusCode < 400 && res.Header.Get("Metadata-Flavor") != "Google": // for example a captive portal
		res.Body.Close()
		return nil, errNotMetadata
	}
	if to, err := res.Location(); err == nil && res.StatusCode < 400 && (to.Host != req.URL.Host ||
		to.Scheme != req.URL.Scheme) {
		// The client library ignores the error of CheckSameHost and returns this response.
		res.Body.Close()
		return nil, redirectError(to.Host)
	}
	if etag, ok := req.Context().Value(etagKey{}).(*string); ok {
		*etag = res.Header.Get("ETag")
	}
	res.Body = limitBody(connectionErrorBody{res.Body}, maxMetadata)
	return res, nil
}

// connectionErrorBody is a response body that converts network errors to a connectionError, so that
// the client library does not retry them.
type connectionErrorBody struct{ io.ReadCloser }

func (b connectionErrorBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &connectionError{errConnection, err}
	}
	return n, err
}

// truncate limits the length of text from a server for an error message.
func truncate(s string) string {
	if len(s) <= maxQuotedText {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuotedText], "") + "..."
}

// maxQuotedText is the maximum length in bytes of server messages in an error.
const maxQuotedText = 400
