package clusterresolver

import (
	"fmt"
	"io"
	"net/http"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrTooLarge matches the error of a server whose answer is too large, in bytes or in what it
	// lists.
	ErrTooLarge = errkind.New(errkind.ResourceExhaustedError, "clusterresolver: the answer is larger than any that makes sense")
	// ErrRedirected matches the error of a server that sends a request on to another host. Such
	// answers are not followed: the other host is not the service that was asked, and would get the
	// request's credentials.
	ErrRedirected = errkind.New(errkind.PermissionDeniedError, "clusterresolver: the server sends the request on to another host, which is not followed")
)

// maxRedirects bounds the redirects within a host.
const maxRedirects = 3

// SameHost is an [http.Client]'s CheckRedirect. It follows a few redirects within the host that was
// asked, by the same scheme, and returns an error that matches [ErrRedirected] for any other.
func SameHost(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return redirected(req.URL.Host)
	}
	if len(via) > maxRedirects {
		return &errkind.Fault{Op: "clusterresolver: redirect", Reason: fmt.Sprintf("stopped after %d redirects", maxRedirects),
			Hint: "ask the host that answers", Class: errkind.UnavailableError}
	}
	return nil
}

func redirected(host string) error {
	return &errkind.Fault{Match: ErrRedirected, Reason: cut(host), Hint: "ask that host itself, if it is trusted"}
}

// Bounded returns a transport that hands on base's answers with bounded bodies: reading more than
// limit bytes of a body fails with an error that matches [ErrTooLarge]. A nil base stands for
// [http.DefaultTransport].
func Bounded(base http.RoundTripper, limit int) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return boundedTransport{base, limit}
}

type boundedTransport struct {
	base  http.RoundTripper
	limit int
}

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = bounded(res.Body, t.limit)
	return res, nil
}

// boundedBody fails rather than reads without end.
type boundedBody struct {
	io.ReadCloser
	left, limit int
}

func bounded(body io.ReadCloser, limit int) *boundedBody { return &boundedBody{body, limit, limit} }

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge()
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, b.tooLarge()
	}
	return n, err
}

func (b *boundedBody) tooLarge() error {
	return &errkind.Fault{Match: ErrTooLarge, Reason: fmt.Sprintf("it is longer than %d MiB", b.limit>>20),
		Hint: "see what answers at this address"}
}
