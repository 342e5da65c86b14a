package clusterresolver

import "context"

const gkeName = "gke"

// GKE resolves a cluster from the variables that Google Kubernetes Engine sets in a pod with TPUs,
// and that other platforms set to the same effect; [Environment] lists the variables. It applies if
// TPU_WORKER_HOSTNAMES or TPU_PROCESS_ADDRESSES is set.
//
// A task is a process. With TPU_PROCESS_ADDRESSES there is one task for each entry, and
// CLOUD_TPU_TASK_ID is the number of this task. Otherwise there is one task for each host, and
// TPU_WORKER_ID is its number.
type GKE struct {
	// Getenv reads the environment. Nil stands for an empty environment.
	Getenv Getenv
	SliceOptions
}

// Name returns "gke".
func (GKE) Name() string { return gkeName }

// Resolve reads the variables. It does not block. The error joins one [*ParseError] for each
// malformed variable, or is a [*CheckError] if variables contradict each other.
func (r GKE) Resolve(context.Context) (Cluster, error) {
	if r.Getenv.get("TPU_WORKER_HOSTNAMES") == "" && r.Getenv.get("TPU_PROCESS_ADDRESSES") == "" {
		return Cluster{}, notDetected(gkeName, "neither TPU_WORKER_HOSTNAMES nor TPU_PROCESS_ADDRESSES is set", nil)
	}
	env, err := ReadEnvironment(r.Getenv)
	if err != nil {
		return Cluster{}, err
	}
	return r.slice(gkeName, env, Metadata{})
}
