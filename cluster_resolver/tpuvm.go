package clusterresolver

import (
	"context"
	"errors"
)

const tpuVMName = "tpu_vm"

// TPUVM resolves a cluster on a Cloud TPU VM from its metadata server. Environment variables take
// precedence over the metadata. TPUVM applies if the metadata server describes a TPU and
// TPU_SKIP_MDS_QUERY is not set.
type TPUVM struct {
	// Getenv reads the environment. If nil, the environment is empty.
	Getenv Getenv
	// Metadata reads the metadata server. If nil, a client with default options is used.
	Metadata *MetadataClient
	SliceOptions
}

// Name returns "tpu_vm".
func (TPUVM) Name() string { return tpuVMName }

// Resolve queries the metadata server. It blocks for at most the duration of the client's [Retry],
// or until ctx is done. Errors are a [*MetadataError], a [*ParseError], or, if variables contradict
// the metadata, a [*CheckError].
func (r TPUVM) Resolve(ctx context.Context) (Cluster, error) {
	env, err := ReadEnvironment(r.Getenv)
	if err != nil {
		return Cluster{}, err
	}
	if env.SkipMetadata {
		return Cluster{}, notDetected(tpuVMName, "TPU_SKIP_MDS_QUERY is set", nil)
	}
	client := r.Metadata
	if client == nil {
		client = NewMetadataClient(MetadataOptions{})
	}
	md, err := client.Read(ctx)
	switch {
	case errors.Is(err, ErrNotDetected) && ctx.Err() == nil:
		return Cluster{}, notDetected(tpuVMName, "no metadata server", err)
	case err != nil:
		return Cluster{}, err
	case !md.isPresent():
		return Cluster{}, notDetected(tpuVMName, "the metadata server describes no TPU", nil)
	}
	if len(md.Endpoints) == 0 && len(env.Hostnames) == 0 && len(env.ProcessAddresses) == 0 {
		// The list can be absent for a TPU with one host. The number of hosts is the size of the
		// process grid, or is inferred from the accelerator type.
		bounds := boundsOrMetadata(env.ProcessBounds, md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
		a, err := parseAccelerator("accelerator-type", md.AcceleratorType)
		if bounds.Size() > 1 || bounds == (Bounds{}) && err == nil && a.minHosts > 1 {
			return Cluster{}, parseError("worker-network-endpoints", "",
				"absent, but "+md.AcceleratorType+" has several workers",
				"set TPU_WORKER_HOSTNAMES, or wait until the node is READY")
		}
		md.Endpoints = []Endpoint{{Host: "localhost"}}
	}
	return r.newCluster(tpuVMName, env, md)
}
