package clusterresolver

import "context"

const gkeName = "gke"

// GKE resolves from the variables that Google Kubernetes Engine sets in a pod with
// TPUs, and that others set to the same effect; [Environment] lists them. It applies
// if TPU_WORKER_HOSTNAMES or TPU_PROCESS_ADDRESSES is set.
//
// A task is a process: one for each entry of TPU_PROCESS_ADDRESSES, with
// CLOUD_TPU_TASK_ID as its number, or else one for each host, with TPU_WORKER_ID.
type GKE struct {
	// Getenv reads the environment; nil means an empty one.
	Getenv Getenv
	SliceOptions
}

// Name returns "gke".
func (GKE) Name() string { return gkeName }

// Resolve reads the variables. It does not block. Malformed variables are
// [*ParseError]s, joined; variables that contradict each other a [*CheckError].
func (r GKE) Resolve(context.Context) (Cluster, error) {
	if r.Getenv == nil || (r.Getenv("TPU_WORKER_HOSTNAMES") == "" && r.Getenv("TPU_PROCESS_ADDRESSES") == "") {
		return Cluster{}, &NotDetectedError{Resolver: gkeName,
			Reason: "neither TPU_WORKER_HOSTNAMES nor TPU_PROCESS_ADDRESSES is set"}
	}
	env, err := ReadEnvironment(r.Getenv)
	if err != nil {
		return Cluster{}, err
	}
	return r.slice(gkeName, env, Metadata{})
}
