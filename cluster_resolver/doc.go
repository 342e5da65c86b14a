// Package clusterresolver determines the processes of a job, the task of this process, and the TPU
// slice that the processes share. It corresponds to TensorFlow's tf.distribute.cluster_resolver.
//
// # Resolvers and clusters
//
// A [Resolver] has a method Resolve, which may block on the network. It returns a [Cluster]: plain
// data with the addresses of the cluster ([ClusterSpec]), the [Task] of this process, and the slice
// ([TPU]). The methods of a Cluster do not use the network, unlike TensorFlow's ClusterResolver,
// which sends a request for each call.
//
//   - [TFConfig] (TFConfigClusterResolver) reads the variable TF_CONFIG (chief, worker, ps, evaluator).
//   - [GKE] reads the variables of a TPU pod in Google Kubernetes Engine.
//   - [TPUVM] reads the metadata server of a Cloud TPU VM.
//   - [CloudTPU] (TPUClusterResolver) queries the Cloud TPU API for a node or queued resource, or
//     accepts addresses.
//   - [Simple] (SimpleClusterResolver) returns a given cluster.
//   - [Union] (UnionResolver) merges the clusters of several resolvers.
//   - [Chain] uses the first resolver that applies. [Default] returns the usual chain.
//
// # Order of the default chain
//
// [Default] tries the following sources in order:
//
//  1. TF_CONFIG, because it was set explicitly for this job.
//  2. The variables of GKE. The host of a pod also has a metadata server, but it describes the host
//     and not the pod.
//  3. The metadata server.
//  4. The TPU in the variable TPU_NAME or KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS. This requires permissions
//     and can be another TPU than the TPU of this host.
//
// The chain skips sources that are absent. If a source is present but malformed, or its server
// fails, the chain stops with this error instead of using another source. [Chain.ResolveAttempts]
// reports why each resolver was skipped.
//
// # Sources
//
//   - The Cloud TPU API (nodes and queued resources) sets the metadata attributes accelerator-type,
//     agent-worker-number, worker-network-endpoints and tpu-env. For several slices of a queued
//     resource, tpu-env contains MEGASCALE_* variables.
//   - Compute Engine (instances and managed instance groups) sets the same attributes, but uses
//     worker-id instead of agent-worker-number. Some images have keys with the prefix TPU_ in tpu-env.
//     An instance without these attributes matches no resolver. Set TF_CONFIG to run a job of one
//     process on it.
//   - GKE (Job and JobSet) sets the variables TPU_WORKER_ID, TPU_WORKER_HOSTNAMES, TPU_TOPOLOGY,
//     TPU_ACCELERATOR_TYPE, TPU_HOST_BOUNDS and TPU_CHIPS_PER_HOST_BOUNDS; TPU_PROCESS_ADDRESSES and
//     TPU_PROCESS_PORT for TPU7x; and MEGASCALE_* for several slices. JOB_COMPLETION_INDEX and
//     HOSTNAME are used only to check TPU_WORKER_ID.
//
// The directory testdata/script contains a test for each source.
//
// # Errors
//
// An error that matches [ErrNotDetected] means that the source does not apply. A [*ParseError]
// reports malformed input. A [*CheckError] reports contradictory input. A [*MetadataError] or
// [*APIError] reports a failed request; it matches [ErrNotFound] if the resource does not exist. A
// [*NotReadyError] reports a TPU that exists but is not ready. An error that matches [ErrNoTask]
// reports a task that is not in the cluster.
//
// # Consistency checks
//
// [Check] compares the environment variables with the metadata. It returns a [Finding] with a
// correction for each contradiction. For example, MEGASCALE_* variables that were set before a
// preemption make a job wait for hosts that no longer exist. Resolvers return findings of severity
// [SeverityError] as an error, unless [SliceOptions].AllowErrors is set.
//
// The number of chips, hosts and devices of an accelerator type is from a built-in table, which can
// be outdated. A difference from this table is only a warning.
//
// # Environment and network
//
// Environment variables are read with a [Getenv] function of the caller. Empty variables are
// treated as unset. The only exception is GCE_METADATA_HOST, which Google's metadata client reads
// itself. Each network request has a timeout and is repeated according to [Retry]. Importing the
// package and creating a resolver have no side effects.
//
// The package limits the size of all external input, such as responses and lists of workers, and of
// server messages in errors ([ErrTooLarge]). It does not follow redirects to other hosts
// ([ErrRedirected]).
//
// # Preemption and maintenance
//
// [MetadataClient.Watch] sends notices of preemption and maintenance on a channel.
package clusterresolver
