// Package clusterresolver finds out where a job runs: which processes it has, which
// of them this one is, and what TPU slice they share.
//
// # Resolvers and clusters
//
// A [Resolver] has one call that may block, Resolve. It returns a [Cluster]: plain
// data with the cluster's addresses ([ClusterSpec]), this process's [Task], and the
// slice ([TPU]). Everything after that is a pure lookup. The contract is that of
// tf.distribute.cluster_resolver, whose ClusterResolver queries on each call; here
// one call gives one consistent answer.
//
//   - [TFConfig]: the variable TF_CONFIG (chief, worker, ps, evaluator).
//   - [GKE]: the variables of a TPU pod in Google Kubernetes Engine.
//   - [TPUVM]: the metadata server of a Cloud TPU VM.
//   - [CloudTPU]: the Cloud TPU API, by name of a node or queued resource; or addresses.
//   - [Simple]: a cluster that is given.
//   - [Union]: several at once.
//   - [Chain]: the first that applies. [Default] is the usual one.
//
// # The order of the default chain
//
// [Default] asks, in this order, TF_CONFIG, which someone set on purpose for this
// job; the variables of GKE, because a pod's host also has a metadata server, which
// describes the machine and not the pod; the metadata server; and last the TPU that
// a variable names, because that needs permissions and describes a TPU elsewhere as
// well as this one. [Chain.Explain] reports why each resolver before the match did
// not match.
//
// A source that is absent is passed over. A source that is present but malformed, or
// a server that is in trouble, ends the search with its error: going on would put the
// process into a cluster that nobody described.
//
// # Errors
//
// [ErrNotDetected]: the source does not apply here. [*ParseError]: an input is
// malformed; it names the input, the text and what to write. [*CheckError]: inputs
// contradict each other. [*MetadataError] and [*APIError]: a server failed;
// [ErrNotFound] if it answered that there is no such thing. [*NotReadyError]: a TPU
// exists but is not up. [*LookupError]: a task that the cluster does not have.
//
// # Cross-checks
//
// [Check] compares the variables with the metadata and returns [Finding] values, each
// with what to do. Variables that outlive the slice they were set for, such as
// MEGASCALE_* after a pre-emption, make a job wait for machines that are gone, so
// resolvers refuse findings of severity [SeverityError] unless told otherwise.
//
// Only facts can contradict each other: the variables, the metadata, and the devices
// that a plugin opens. What follows from an accelerator's type by a table (its chips,
// hosts and devices) is inferred, and what differs from it is a warning.
//
// # The environment, time and the network
//
// Variables are read through a [Getenv] that the caller gives; an empty variable
// counts as unset. There is one exception that is not ours: Google's metadata client
// reads GCE_METADATA_HOST itself. Each network call has a deadline, and is tried
// again with growing pauses as [Retry] says, whose clock can be replaced. Nothing
// happens when the package is imported or a resolver is made.
//
// What comes from outside is bounded: answers, lists of workers and slices, chips and
// the words of a server in an error ([ErrTooLarge]). A redirect to another host is not
// followed ([ErrRedirected]).
//
// # Notices of pre-emption and maintenance
//
// [MetadataClient.Watch] follows them by long poll and sends each on a channel.
package clusterresolver
