package clusterresolver

import "context"

const gkeName = "gke"

// GKE resolves a cluster from the variables that Google Kubernetes Engine sets in a pod with TPUs;
// see [Environment]. Other platforms set the same variables. GKE applies if TPU_WORKER_HOSTNAMES or
// TPU_PROCESS_ADDRESSES is set.
//
// With TPU_PROCESS_ADDRESSES, there is one task for each address, and CLOUD_TPU_TASK_ID is the index of
// this task. Otherwise there is one task for each host, and TPU_WORKER_ID is the index of this task.
type GKE struct {
	// Getenv reads the environment. If nil, the environment is empty.
	Getenv Getenv
	SliceOptions
}

// Name returns "gke".
func (GKE) Name() string { return gkeName }

// Resolve reads the variables. It does not block. The error contains a [*ParseError] for each
// malformed variable. If variables contradict each other, it is a [*CheckError].
func (r GKE) Resolve(context.Context) (Cluster, error) {
	if r.Getenv.lookup("TPU_WORKER_HOSTNAMES") == "" && r.Getenv.lookup("TPU_PROCESS_ADDRESSES") == "" {
		return Cluster{}, notDetected(gkeName, "neither TPU_WORKER_HOSTNAMES nor TPU_PROCESS_ADDRESSES is set", nil)
	}
	env, err := ReadEnvironment(r.Getenv)
	if err != nil {
		return Cluster{}, err
	}
	return r.newCluster(gkeName, env, Metadata{})
}
