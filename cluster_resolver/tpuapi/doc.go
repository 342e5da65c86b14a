// Package tpuapi reads nodes and queued resources from the Cloud TPU API, version 2.
//
// It is a separate module so that only programs that look up a TPU by name depend on Google's client
// libraries. Its [Client] is used with [github.com/tpustrategy/tpustrategy/cluster_resolver.CloudTPU]:
//
//	client, err := tpuapi.New(ctx)
//	...
//	r := clusterresolver.CloudTPU{TPU: "my-tpu", Zone: "us-central2-b", Project: "my-project", API: client}
//	cluster, err := r.Resolve(ctx)
//
// The fields are documented in "REST Resource: projects.locations.nodes" and
// "projects.locations.queuedResources", cloud.google.com/tpu/docs/reference/rest/v2.
package tpuapi
