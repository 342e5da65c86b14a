// Package tpuapi asks the Cloud TPU API, version 2, for nodes and queued resources.
//
// It stands apart from package clusterresolver so that only programs that look up a TPU by name
// carry Google's client libraries. Give its [Client] to
// [github.com/tpustrategy/tpustrategy/cluster_resolver.CloudTPU]:
//
//	client, err := tpuapi.New(ctx)
//	...
//	r := clusterresolver.CloudTPU{TPU: "my-tpu", Zone: "us-central2-b", Project: "my-project", API: client}
//	cluster, err := r.Resolve(ctx)
//
// Source of the fields: "REST Resource: projects.locations.nodes" and
// "projects.locations.queuedResources", cloud.google.com/tpu/docs/reference/rest/v2.
package tpuapi
