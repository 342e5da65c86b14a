// Package clusterresolver finds out where a job runs: which processes the job has, which of the
// processes this one is, and which TPU slice the processes share. It is TensorFlow's
// tf.distribute.cluster_resolver.
//
// # Resolvers and clusters
//
// A [Resolver] has one call that may block, Resolve. It returns a [Cluster]: plain data with the
// cluster's addresses ([ClusterSpec]), this process's [Task], and the slice ([TPU]). The methods of
// a Cluster ask nobody. TensorFlow's ClusterResolver queries on each call; here one call gives one
// consistent answer.
//
//   - [TFConfig] (TFConfigClusterResolver): the variable TF_CONFIG (chief, worker, ps, evaluator).
//   - [GKE]: the variables of a TPU pod in Google Kubernetes Engine.
//   - [TPUVM]: the metadata server of a Cloud TPU VM.
//   - [CloudTPU] (TPUClusterResolver): the Cloud TPU API, by name of a node or queued resource; or
//     addresses.
//   - [Simple] (SimpleClusterResolver): a cluster that the caller gives.
//   - [Union] (UnionResolver): the clusters of several resolvers in one.
//   - [Chain]: the first resolver that applies. [Default] returns the usual chain.
//
// # The order of the default chain
//
// [Default] asks, in this order, TF_CONFIG, which someone set on purpose for this job; the
// variables of GKE, because a pod's host also has a metadata server, which describes the machine
// and not the pod; the metadata server; and last the TPU that a variable names, because that needs
// permissions and describes a TPU elsewhere as well as this one. [Chain.Explain] reports why each
// resolver before the match did not match.
//
// The chain passes over a source that is absent. A source that is present but malformed, or a
// server that is in trouble, ends the search with its error: going on would put the process into a
// cluster that nobody described.
//
// # What each place sets
//
//   - Cloud TPU API (nodes and queued resources, spot or not): the attributes accelerator-type,
//     agent-worker-number, worker-network-endpoints and tpu-env; for several slices of one queued
//     resource tpu-env also has MEGASCALE_*.
//   - Compute Engine (instances and managed instance groups): the same attributes, with the number
//     under worker-id and, on some images, keys of tpu-env that begin with TPU_. An instance whose
//     metadata has none of them matches no resolver: say with TF_CONFIG that the job is one process.
//   - GKE (Job and JobSet): TPU_WORKER_ID, TPU_WORKER_HOSTNAMES, TPU_TOPOLOGY,
//     TPU_ACCELERATOR_TYPE, TPU_HOST_BOUNDS, TPU_CHIPS_PER_HOST_BOUNDS; TPU_PROCESS_ADDRESSES and
//     TPU_PROCESS_PORT for TPU7x; MEGASCALE_* for several slices. JOB_COMPLETION_INDEX and HOSTNAME
//     are only held against them.
//
// testdata/script has a case of each, with its source, and what is refused there.
//
// # Errors
//
// [ErrNotDetected] says that the source does not apply here. [*ParseError] reports a malformed
// input: it names the input, the text and what to write. [*CheckError] reports inputs that
// contradict each other. [*MetadataError] and [*APIError] report a server that failed; they match
// [ErrNotFound] if the server answered that there is no such thing. [*NotReadyError] reports a TPU
// that exists but is not up, and [ErrNoTask] says that the cluster does not have a task.
//
// # Cross-checks
//
// [Check] compares the variables with the metadata and returns [Finding] values, each with what to
// do. Variables that outlive the slice for which they were set, such as MEGASCALE_* after a
// pre-emption, make a job wait for machines that are gone. Resolvers therefore return findings of
// severity [SeverityError] as an error, unless [SliceOptions].AllowErrors is set.
//
// Only facts can contradict each other: the variables, the metadata, and the devices that a plugin
// opens. The numbers of chips, hosts and devices that belong to an accelerator's type come from a
// table; a fact that differs from the table is a warning.
//
// # The environment, time and the network
//
// Variables are read through a [Getenv] that the caller gives; an empty variable counts as not set.
// There is one exception: Google's metadata client reads GCE_METADATA_HOST itself. Each network
// call has a deadline, and is repeated with growing pauses as [Retry] says. Importing the package,
// or making a resolver, does no work.
//
// The package bounds everything that comes from outside: answers, lists of workers, slices and
// chips, and a server's words in an error ([ErrTooLarge]). It does not follow a redirect to another
// host ([ErrRedirected]).
//
// # Notices of pre-emption and maintenance
//
// [MetadataClient.Watch] follows these notices by long poll and sends each on a channel.
package clusterresolver
