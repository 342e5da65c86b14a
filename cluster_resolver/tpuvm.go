package clusterresolver

import (
	"context"
	"errors"
)

const tpuVMName = "tpu_vm"

// TPUVM resolves a cluster on a Cloud TPU VM, from the VM's metadata server. A variable of this
// process takes precedence over the metadata. TPUVM applies if there is a metadata server that
// knows of a TPU, unless TPU_SKIP_MDS_QUERY is set.
type TPUVM struct {
	// Getenv reads the environment. Nil stands for an empty environment.
	Getenv Getenv
	// Metadata reads the metadata server. Nil stands for a client with default options.
	Metadata *MetadataClient
	SliceOptions
}

// Name returns "tpu_vm".
func (TPUVM) Name() string { return tpuVMName }

// Resolve asks the metadata server. It blocks for as long as the client's [Retry] allows, or until
// ctx ends. The error is a [*MetadataError], a [*ParseError] or, if variables contradict the
// metadata, a [*CheckError].
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
	case !md.known():
		return Cluster{}, notDetected(tpuVMName, "the metadata server knows of no TPU on this machine", nil)
	}
	if len(md.Endpoints) == 0 && len(env.Hostnames) == 0 && len(env.ProcessAddresses) == 0 {
		// A TPU of one machine may come without the list. How many there are is told by the process
		// grid; without one it is inferred.
		bounds := orBounds(env.ProcessBounds, md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
		a, err := parseAccelerator("accelerator-type", md.AcceleratorType)
		if bounds.Size() > 1 || bounds == (Bounds{}) && err == nil && a.minHosts > 1 {
			return Cluster{}, parseError("worker-network-endpoints", "", "absent, though "+md.AcceleratorType+" has several workers",
				"set TPU_WORKER_HOSTNAMES, or wait until the node is READY")
		}
		md.Endpoints = []Endpoint{{Host: "localhost"}}
	}
	return r.slice(tpuVMName, env, md)
}
