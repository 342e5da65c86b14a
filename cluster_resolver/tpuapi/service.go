package tpuapi

import (
	"context"

	"google.golang.org/api/option"
	tpu "google.golang.org/api/tpu/v2"
	htransport "google.golang.org/api/transport/http"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// maxBody bounds one answer of the service, in bytes: that of the largest slice has some hundred
// kilobytes.
const maxBody = 8 << 20

// newService makes the service with a client that follows no redirect to another host, which would
// get the caller's credentials, and reads bounded answers.
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
	guarded.Transport = clusterresolver.Bounded(client.Transport, maxBody)
	service, err := tpu.NewService(ctx, option.WithHTTPClient(&guarded))
	if err != nil {
		return nil, err
	}
	service.BasePath = asked.BasePath
	return service, nil
}
