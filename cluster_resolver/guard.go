package clusterresolver

import (
	"fmt"
	"io"
	"net/http"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrTooLarge is matched by errors for a response that is too large, in bytes or in the number
	// of entries.
	ErrTooLarge = errkind.New(errkind.ResourceExhaustedError, "clusterresolver: the response is too large")
	// ErrRedirected is matched by errors for a redirect to another host. Such redirects are not
	// followed, because the request contains credentials.
	ErrRedirected = errkind.New(errkind.PermissionDeniedError,
		"clusterresolver: the server redirects to another host, which is not followed")
)

// maxRedirects is the maximum number of redirects within a host.
const maxRedirects = 3

// CheckSameHost can be used as CheckRedirect of an [http.Client]. It allows a few redirects within
// the same host and scheme. For other redirects, it returns an error that matches [ErrRedirected].
func CheckSameHost(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return redirectError(req.URL.Host)
	}
	if len(via) > maxRedirects {
		return &errkind.Fault{Op: "clusterresolver: redirect",
			Reason: fmt.Sprintf("stopped after %d redirects", maxRedirects),
			Hint:   "use the URL of the last redirect", Class: errkind.UnavailableError}
	}
	return nil
}

func redirectError(host string) error {
	return &errkind.Fault{Match: ErrRedirected, Reason: truncate(host), Hint: "use this host directly if it is trusted"}
}

// LimitResponseSize returns a transport that limits the size of response bodies to limit bytes.
// Reading a larger body returns an error that matches [ErrTooLarge]. If base is nil,
// [http.DefaultTransport] is used.
func LimitResponseSize(base http.RoundTripper, limit int) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return limitTransport{base, limit}
}

type limitTransport struct {
	base  http.RoundTripper
	limit int
}

func (t limitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = limitBody(res.Body, t.limit)
	return res, nil
}

// limitedBody is a response body with a size limit.
type limitedBody struct {
	io.ReadCloser
	remaining, limit int
}

func limitBody(body io.ReadCloser, limit int) *limitedBody { return &limitedBody{body, limit, limit} }

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.remaining < 0 {
		return 0, b.tooLarge()
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.remaining+1)])
	if b.remaining -= n; b.remaining < 0 {
		return 0, b.tooLarge()
	}
	return n, err
}

func (b *limitedBody) tooLarge() error {
	return &errkind.Fault{Match: ErrTooLarge, Reason: fmt.Sprintf("it is longer than %d MiB", b.limit>>20),
		Hint: "check which server is at this address"}
}
