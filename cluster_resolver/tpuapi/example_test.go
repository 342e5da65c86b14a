package tpuapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"google.golang.org/api/option"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/cluster_resolver/tpuapi"
)

// Programs usually call New without options and get Application Default Credentials. In this
// example a local server replaces the API.
func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"acceleratorType": "v5litepod-4", "state": "READY", "health": "HEALTHY",
			"networkEndpoints": [{"ipAddress": "10.128.0.7", "port": 8470}]}`)
	}))
	defer server.Close()

	ctx := context.Background()
	client, err := tpuapi.New(ctx, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster, err := clusterresolver.CloudTPU{TPU: "my-tpu", Project: "my-project", Zone: "us-west4-a",
		API: client}.Resolve(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cluster.TPU.Name, cluster.Spec, cluster.NumAccelerators, "devices")
	// Output:
	// my-tpu {"worker":["10.128.0.7:8470"]} 4 devices
}
