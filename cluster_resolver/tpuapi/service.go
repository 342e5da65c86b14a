package tpuapi

import (
	"context"

	"google.golang.org/api/option"
	tpu "google.golang.org/api/tpu/v2"
	htransport "google.golang.org/api/transport/http"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// maxBody is the maximum size of a response in bytes. The response for the largest slice has a few
// hundred kilobytes.
const maxBody = 8 << 20

// newService returns a service of the client library. Its HTTP client limits the size of responses.
// It does not follow redirects to other hosts, because they would receive the caller's credentials.
func newService(ctx context.Context, options []option.ClientOption) (*tpu.Service, error) {
	defaultService, err := tpu.NewService(ctx, options...) // determines BasePath
	if err != nil {
		return nil, err
	}
	client, _, err := htransport.NewClient(ctx, append([]option.ClientOption{option.WithScopes(tpu.CloudPlatformScope)},
		options...)...)
	if err != nil {
		return nil, err
	}
	limited := *client
	limited.CheckRedirect = clusterresolver.CheckSameHost
	limited.Transport = clusterresolver.LimitResponseSize(client.Transport, maxBody)
	service, err := tpu.NewService(ctx, option.WithHTTPClient(&limited))
	if err != nil {
		return nil, err
	}
	service.BasePath = defaultService.BasePath
	return service, nil
}
