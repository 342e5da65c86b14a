package tpuapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/api/option"
	tpu "google.golang.org/api/tpu/v2"
	htransport "google.golang.org/api/transport/http"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// maxBody bounds one answer of the service, in bytes: that of the largest slice has
// some hundred kilobytes.
const maxBody = 8 << 20

// newService makes the service with a client that follows no redirect to another
// host, which would get the caller's credentials, and reads bounded answers.
func newService(ctx context.Context, options []option.ClientOption) (*tpu.Service, error) {
	asked, err := tpu.NewService(ctx, options...) // it knows where the service is
	if err != nil {
		return nil, err
	}
	client, _, err := htransport.NewClient(ctx, append([]option.ClientOption{option.WithScopes(tpu.CloudPlatformScope)}, options...)...)
	if err != nil {
		return nil, err
	}
	guarded := *client
	guarded.CheckRedirect = clusterresolver.SameHost
	guarded.Transport = boundedTransport{client.Transport}
	service, err := tpu.NewService(ctx, option.WithHTTPClient(&guarded))
	if err != nil {
		return nil, err
	}
	service.BasePath = asked.BasePath
	return service, nil
}

// boundedTransport bounds the answers' bodies.
type boundedTransport struct{ base http.RoundTripper }

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.base
	if base == nil {
		base = http.DefaultTransport
	}
	res, err := base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = &boundedBody{res.Body, maxBody}
	return res, nil
}

// boundedBody fails rather than reads without end.
type boundedBody struct {
	io.ReadCloser
	left int
}

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
	return fmt.Errorf("%w: more than %d MiB", clusterresolver.ErrTooLarge, maxBody>>20)
}
