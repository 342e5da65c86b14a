package input

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/internal/chunk"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Options specifies the replicas and how the data is divided between them. It combines TensorFlow's
// tf.distribute.InputOptions and tf.data.experimental.DistributeOptions with the number of
// replicas. The zero value is one replica on one process with an automatic policy and rule.
type Options struct {
	Replicas  int             // number of replicas of all processes together; 0: one
	Processes int             // 0: one
	Process   int             // index of this process, from 0; its first replica is Process*Replicas/Processes
	Policy    AutoShardPolicy // how processes divide a dataset: TensorFlow's auto_shard_policy
	Rule      SplitRule
	// Epoch is the epoch of the first pass that [DistributedDataset.Open] opens. Each further Open
	// opens the next pass, in which a Shuffle has another order unless SameEachEpoch is set. A loop
	// that calls Distribute for each pass must set a different Epoch each time.
	Epoch uint64

	// AnyProcess returns true on all processes if any process passes true. It is a collective
	// operation: all processes call it the same number of times, until Next returns an error. It is
	// called once per step, and only if processes can run out of data at different times. If it is
	// nil, each process decides for itself, which is correct only for a single process.
	AnyProcess func(ctx context.Context, mine bool) (bool, error)

	// Layout specifies how a replica's batch is sharded over its devices. This package does not
	// interpret it. The code that transfers elements to devices reads it from
	// [DistributedDataset.Layout].
	Layout any

	// Logger receives a warning if the policy Auto selects Data with several processes, because
	// each process then runs the complete pipeline. If it is nil, the warning is discarded.
	Logger *slog.Logger

	// Replication selects one pipeline per process or, in FromFunction only, one per replica. It is
	// TensorFlow's experimental_replication_mode.
	Replication ReplicationMode
	// PerWorkerOnly rejects the replication PerReplica. Strategies with one pipeline per process
	// set it.
	PerWorkerOnly bool
	// PlaceOnDevice requests pipelines that run on the device: TensorFlow's
	// experimental_place_dataset_on_device. Setting it is always an error, because pipelines run on
	// the host.
	PlaceOnDevice bool
	// KeepOnHost disables the transfer of elements to the device ahead of the step. It is the
	// negation of TensorFlow's experimental_prefetch_to_device, later named
	// experimental_fetch_to_device. This package only yields host values. The code that transfers
	// them to devices reads KeepOnHost from [DistributedDataset.KeepOnHost].
	KeepOnHost bool
}

// ReplicationMode specifies whether there is one input pipeline per process or one per replica. It
// is TensorFlow's tf.distribute.InputReplicationMode.
type ReplicationMode uint8

const (
	// PerWorker creates one pipeline for each process: TensorFlow's PER_WORKER.
	PerWorker ReplicationMode = iota
	// PerReplica creates one pipeline for each replica: TensorFlow's PER_REPLICA.
	PerReplica
)

// String returns the constant's name.
func (r ReplicationMode) String() string { return enum.Name(r, "PerWorker", "PerReplica") }

// withDefaults sets default values and checks the options that do not depend on the data.
func (o Options) withDefaults() (Options, error) {
	o.Replicas, o.Processes = cmp.Or(o.Replicas, 1), cmp.Or(o.Processes, 1)
	switch {
	case o.Replicas < 0 || o.Processes < 0 || o.Process < 0 || o.Process >= o.Processes:
		return o, valueError("options", "count processes from 0, and give at least one replica",
			"process %d of %d with %d replicas", o.Process, o.Processes, o.Replicas)
	case o.Replicas%o.Processes != 0:
		return o, unevenReplicasError(o.Replicas, o.Processes)
	case int(o.Rule) >= len(splitters):
		return o, valueError("options", "use a constant of type SplitRule", "unknown rule %v", o.Rule)
	case o.Replication > PerReplica:
		return o, valueError("options", "use PerWorker or PerReplica", "unknown replication %v", o.Replication)
	case o.PlaceOnDevice && o.Replication != PerReplica:
		return o, valueError("options", "leave PlaceOnDevice out: pipelines run on the host",
			"PlaceOnDevice without the replication PerReplica")
	case o.PlaceOnDevice && !o.KeepOnHost && !o.PerWorkerOnly: // PerWorkerOnly rejects PerReplica in any case
		return o, valueError("options", "leave PlaceOnDevice out: pipelines run on the host",
			"PlaceOnDevice with the replication PerReplica and without KeepOnHost")
	}
	return o, nil
}

// DistributedDataset provides the input of the replicas of one process, like TensorFlow's
// tf.distribute.DistributedDataset. It reads no data before Open and is safe for concurrent use. It
// counts its passes, so all processes must open it the same number of times.
type DistributedDataset struct {
	opts    Options
	passes  atomic.Uint64
	streams []Dataset // one, or one for each local replica
	// newStreams creates the streams that one process of a job reads.
	newStreams        func(job jobSize, process int) (streams []Dataset, isShared bool, err error)
	isShared          bool // the stream contains the batches of all replicas; each process uses those of its own replicas
	localReplicas     int  // number of replicas of this process
	spec              Spec
	policy            AutoShardPolicy
	rule              SplitRule
	cardinality       Cardinality
	needsAllReplicas  bool // a step needs data for all replicas
	needsVote         bool // processes may run out of data at different times
	isBatched         bool // true if the elements are known to be batches
	splitsGlobalBatch bool // true if the stream is split from global batches
	maxRows           int  // largest number of rows of a replica, or Unknown
	globalBatch       int  // rows of the global batch that is split; below 1 if not known
}

// Distribute divides a dataset of global batches over processes and replicas, like TensorFlow's
// experimental_distribute_dataset. All processes must call it with the same dataset and the same
// options except for Process.
//
// In every step, each replica receives one part of a global batch. With one replica the batches are
// unchanged. If the data ends within a step, the replicas without data receive batches of 0 rows.
// If the dataset is infinite or all dimensions of its spec are known (as after Batch with
// dropRemainder), such an incomplete step is omitted.
//
// If the dataset is not batched, Distribute returns an error that matches [ErrNotBatched]. If
// nothing is known about the elements, the first Next returns that error. Other errors match
// [ErrNotShardable], [ErrTooFewFiles] or errors.ErrUnsupported.
func Distribute(ds Dataset, opts Options) (*DistributedDataset, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ds.Err(); err != nil {
		return nil, err
	}
	if opts.Replication == PerReplica {
		return nil, unsupportedError("distribute", "use FromFunction",
			"one dataset has one pipeline for each process, not the replication PerReplica")
	}
	newPipeline := func(job jobSize, process int) (processPipeline, error) {
		return newProcessPipeline(ds.source(), opts.Policy, job, process, opts.Rule)
	}
	p, err := newPipeline(jobSize{opts.Replicas, opts.Processes}, opts.Process)
	if err != nil {
		return nil, err
	}
	if opts.Policy == Auto && p.policy == Data && opts.Processes > 1 && opts.Logger != nil {
		opts.Logger.Warn("input: the dataset reads no files, so every process runs the whole pipeline and uses only its "+
			"part of the elements; to avoid this, use the policy Off and a dataset that each process divides itself",
			"processes", opts.Processes, "policy", p.policy.String())
	}
	d := &DistributedDataset{opts: opts, localReplicas: opts.Replicas / opts.Processes, streams: []Dataset{p.stream},
		isShared: p.isShared, policy: p.policy, rule: p.rule, cardinality: p.cardinality,
		maxRows: Unknown, globalBatch: p.globalBatch, splitsGlobalBatch: true, isBatched: p.isBatched}
	if p.globalBatch >= 1 {
		_, d.maxRows = chunk.Range(p.globalBatch, opts.Replicas, 0)
	}
	d.newStreams = func(job jobSize, process int) ([]Dataset, bool, error) {
		p, err := newPipeline(job, process)
		return []Dataset{p.stream}, p.isShared, err
	}
	// With the policy Data and the rule Chunks, all processes have the same number of steps.
	d.needsVote = opts.Processes > 1 && (p.policy != Data || !splitters[p.rule].equalSteps)
	d.setEndBehavior(p.stream.Info().Spec, ds.Info()) // the Info of the undivided dataset is the same on all processes
	return d, nil
}

// checkBatched returns an error if the elements are known to have no batch axis.
func checkBatched(info Info) error {
	paths := info.Spec.Paths()
	for i, s := range info.Spec.Leaves() {
		if len(s.Dims) == 0 || info.BatchSize == 0 && s.Dims[0] >= 0 {
			return notBatchedError(paths[i], s)
		}
	}
	return nil
}

func globalBatchSize(info Info) (rows int, known bool) {
	if rows = leadingDim(info.Spec); rows >= 1 && info.BatchSize != 0 {
		return rows, true
	}
	return info.BatchSize, !info.batchSizeUncertain
}

// processPipeline is a stream of global batches that were split into one part per replica.
type processPipeline struct {
	stream      Dataset
	policy      AutoShardPolicy
	rule        SplitRule
	cardinality Cardinality
	isShared    bool // the stream contains the batches of the replicas of all processes
	globalBatch int  // rows of the batches that are split; below 1 if not known
	isBatched   bool // true if the elements are known to be batches
}

// newProcessPipeline selects the data that one process of a job reads under a policy, and splits
// its batches into one part per replica. With one replica, batches are not split.
func newProcessPipeline(src Source, policy AutoShardPolicy, job jobSize, process int,
	rule SplitRule) (p processPipeline, err error) {
	if src, policy, err = shardSource(src, policy, job.processes, process); err != nil {
		return p, err
	}
	info := src.Info()
	global, known := globalBatchSize(info)
	p = processPipeline{stream: Dataset{src}, policy: policy, rule: RuleAuto, cardinality: info.Cardinality,
		globalBatch: global, isBatched: info.BatchSize != 0}
	if job.replicas <= 1 {
		return p, nil
	}
	if err := checkBatched(info); err != nil {
		return p, err
	}
	if p.rule = rule; rule == RuleAuto {
		p.rule = autoSplitRule(policy, global, known)
	}
	partsPerStep := job.localReplicas()
	if p.isShared = policy == Data && job.processes > 1; p.isShared {
		partsPerStep, process = job.replicas, 0 // all processes split in the same way and use their own parts
	}
	if p.stream, err = splitters[p.rule].splitBatches(p.stream, global, job, process); err != nil {
		return p, err
	}
	if p.cardinality = p.stream.Info().Cardinality; p.cardinality > 0 {
		p.cardinality /= Cardinality(partsPerStep)
	}
	return p, p.stream.Err()
}

// setEndBehavior decides when the input ends, and sets needsAllReplicas and needsVote accordingly.
// info describes the dataset before its batches are split.
func (d *DistributedDataset) setEndBehavior(replicaSpec Spec, info Info) {
	d.spec = replicaSpec
	d.needsAllReplicas = info.Cardinality == Infinite || isStaticSpec(info.Spec)
	if info.Cardinality == Infinite {
		d.needsVote = false
	}
}

// Spec returns the spec of the elements of a replica, which is the same for all replicas. It is
// TensorFlow's DistributedDataset.element_spec. It is zero if the spec of the dataset is unknown.
func (d *DistributedDataset) Spec() Spec { return d.spec }

// LocalReplicas returns the number of replicas of this process. Every [Step] has that many elements.
func (d *DistributedDataset) LocalReplicas() int { return d.localReplicas }

// Layout returns [Options].Layout.
func (d *DistributedDataset) Layout() any { return d.opts.Layout }

// KeepOnHost returns [Options].KeepOnHost.
func (d *DistributedDataset) KeepOnHost() bool { return d.opts.KeepOnHost }

// Policy returns the policy in use. If the options specify Auto, it is the policy that Auto selected.
func (d *DistributedDataset) Policy() AutoShardPolicy { return d.policy }

// Rule returns the rule by which batches are split, or RuleAuto if batches are not split.
func (d *DistributedDataset) Rule() SplitRule { return d.rule }

// Cardinality returns the number of steps of a pass, if it is known before the data is read.
func (d *DistributedDataset) Cardinality() Cardinality { return d.cardinality }

// MaxRows returns the largest number of rows of a replica in a step: ceil(G/N) for a global batch
// of G rows and N replicas. Pass it to [PadStep] as the number of rows. MaxRows returns Unknown if
// the batch size is unknown, and an invalid number after a Map that changes the number of rows.
func (d *DistributedDataset) MaxRows() int { return d.maxRows }

// All iterates over the steps of the next pass. After an error, the iteration ends.
func (d *DistributedDataset) All(ctx context.Context) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		steps, err := d.Open(ctx)
		if err != nil {
			yield(Step{}, err)
			return
		}
		defer steps.Close()
		yieldAll(ctx, steps.Next, yield)
	}
}

// Reduce folds the steps of the next pass into one value, like TensorFlow's
// DistributedDataset.reduce. It calls fn for each step with the previous result, beginning with
// state, and returns the last result. It stops at the first error.
func Reduce[S any](ctx context.Context, d *DistributedDataset, state S, fn func(S, Step) (S, error)) (S, error) {
	for step, err := range d.All(ctx) {
		if err == nil {
			state, err = fn(state, step)
		}
		if err != nil {
			return state, err
		}
	}
	return state, nil
}
