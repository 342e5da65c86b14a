package input

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Options says for which replicas input is made, and how it is divided: TensorFlow's
// tf.distribute.InputOptions, with what its strategy and its datasets' DistributeOptions say. The
// zero value is one replica on one process, with automatic policy and rule.
type Options struct {
	Replicas  int    // of all processes together; 0: one
	Processes int    // 0: one
	Process   int    // this process, from 0; its replicas are Process*Replicas/Processes and following
	Policy    Policy // how processes share a dataset: TensorFlow's auto_shard_policy
	Rule      Rule
	// Epoch is the first pass that [DistributedDataset.Open] opens. Each further Open opens the
	// next pass, in which a Shuffle has another order unless its options say otherwise. A loop that
	// distributes the dataset anew for each pass gives another Epoch each time.
	Epoch uint64

	// AnyProcess returns true if any process passes true: the processes' vote on whether there is
	// another step. It is called once for each step, and only if processes can run out of data at
	// different times. Every process calls it equally often, until Next returns io.EOF or another
	// error. Nil lets every process decide alone, which is right for a single process.
	AnyProcess func(ctx context.Context, mine bool) (bool, error)

	// Layout says how each replica's part is to lie on its devices. This package does not look at
	// it: whoever puts the elements on devices reads it from [DistributedDataset.Layout].
	Layout any

	// Logger receives a warning where the policy Auto deals the elements of a dataset that reads no
	// files to several processes, each of which then runs the whole pipeline. Nil discards.
	Logger *slog.Logger

	// Replication chooses between one pipeline for each process and, in FromFunction only, one for
	// each replica: TensorFlow's experimental_replication_mode.
	Replication Replication
	// ProcessPipelines refuses the replication PerReplica, as strategies do whose replicas are fed
	// by their process.
	ProcessPipelines bool
	// PlaceOnDevice requests pipelines that run on the device: TensorFlow's
	// experimental_place_dataset_on_device. Setting it is always an error, because pipelines run on the
	// host.
	PlaceOnDevice bool
	// KeepOnHost says that elements are not sent to the device ahead of the step: TensorFlow's
	// experimental_prefetch_to_device, later experimental_fetch_to_device, negated. Elements are
	// host values in this package in any case: whoever puts them on devices ahead of a step reads
	// it from [DistributedDataset.KeepOnHost].
	KeepOnHost bool
}

// Replication says how many input pipelines there are: TensorFlow's
// tf.distribute.InputReplicationMode.
type Replication uint8

const (
	// PerWorker makes one pipeline for each process: TensorFlow's PER_WORKER.
	PerWorker Replication = iota
	// PerReplica makes one pipeline for each replica: TensorFlow's PER_REPLICA.
	PerReplica
)

// String returns the constant's name.
func (r Replication) String() string { return enum.Name(r, "PerWorker", "PerReplica") }

// normalize fills in the defaults and checks what does not depend on the data.
func (o Options) normalize() (Options, error) {
	o.Replicas, o.Processes = cmp.Or(o.Replicas, 1), cmp.Or(o.Processes, 1)
	switch {
	case o.Replicas < 0 || o.Processes < 0 || o.Process < 0 || o.Process >= o.Processes:
		return o, wrong("options", "count processes from 0, and give at least one replica", "process %d of %d with %d replicas", o.Process, o.Processes, o.Replicas)
	case o.Replicas%o.Processes != 0:
		return o, uneven(o.Replicas, o.Processes)
	case o.Rule > Sizes:
		return o, wrong("options", "use RuleAuto, Chunks or Sizes", "unknown rule %v", o.Rule)
	case o.Replication > PerReplica:
		return o, wrong("options", "use PerWorker or PerReplica", "unknown replication %v", o.Replication)
	case o.PlaceOnDevice && o.Replication != PerReplica:
		return o, wrong("options", "leave PlaceOnDevice out: pipelines run on the host", "PlaceOnDevice without the replication PerReplica")
	case o.PlaceOnDevice && !o.KeepOnHost && !o.ProcessPipelines: // which refuse PerReplica whatever else is asked
		return o, wrong("options", "leave PlaceOnDevice out: pipelines run on the host", "PlaceOnDevice with the replication PerReplica and without KeepOnHost")
	}
	return o, nil
}

// DistributedDataset is the input of the replicas of one process: TensorFlow's
// tf.distribute.DistributedDataset. It reads nothing before Open, and any number of goroutines may
// open it. It counts its passes, so processes that divide one dataset must open it equally often.
type DistributedDataset struct {
	opts    Options
	passes  atomic.Uint64
	streams []Dataset // one, or one for each local replica
	// pipelines makes the streams of one process of a run that divides its data in some way.
	pipelines func(of division, process int) (streams []Dataset, dealt bool, err error)
	dealt     bool // the stream has the parts of all replicas, which are dealt to the processes
	local     int  // replicas of this process
	spec      Spec
	policy    Policy
	rule      Rule
	card      Cardinality
	full      bool // a step needs data for all replicas
	vote      bool // processes may run out of data at different times
	batched   bool // the elements are known to be batches
	whole     bool // the stream is cut from global batches
	rows      int  // largest share of a replica, Unknown if not known
	global    int  // rows of a global batch that is cut, below 1 if not known
}

// Distribute divides a dataset of global batches over processes and replicas, as TensorFlow's
// experimental_distribute_dataset does. All processes call it with the same dataset and the same
// options but for Process.
//
// Every step gives each replica one part of a batch. With one replica the batches are passed on
// unchanged. If the data ends within a step, the replicas without data get batches of no rows. The
// step is left out instead if the dataset never ends or all dimensions of its spec are known (from
// Batch with dropRemainder).
//
// A dataset that is not batched matches [ErrNotBatched]: from Distribute or, if nothing is known of
// the elements, from the first Next. Other errors match [ErrNotShardable], [ErrTooFewFiles] and
// errors.ErrUnsupported.
func Distribute(ds Dataset, opts Options) (*DistributedDataset, error) {
	opts, err := opts.normalize()
	if err != nil {
		return nil, err
	}
	if err := ds.Err(); err != nil {
		return nil, err
	}
	if opts.Replication == PerReplica {
		return nil, unsupported("distribute", "use FromFunction", "one dataset has one pipeline for each process, not the replication PerReplica")
	}
	read := func(of division, process int) (parts, error) {
		return cut(ds.source(), opts.Policy, of, process, opts.Rule)
	}
	c, err := read(division{opts.Replicas, opts.Processes}, opts.Process)
	if err != nil {
		return nil, err
	}
	if opts.Policy == Auto && c.policy == Data && opts.Processes > 1 && opts.Logger != nil {
		opts.Logger.Warn("input: the dataset reads no files that could be shared out, so every process runs the whole pipeline and takes its part of the elements; "+
			"use the policy Off, and a dataset that each process divides by itself, to avoid the redundant work", "processes", opts.Processes, "policy", c.policy.String())
	}
	d := &DistributedDataset{opts: opts, local: opts.Replicas / opts.Processes, streams: []Dataset{c.stream}, dealt: c.dealt, policy: c.policy, rule: c.rule, card: c.card,
		rows: Unknown, global: c.global, whole: true, batched: c.batched}
	if c.global >= 1 {
		d.rows = (c.global + opts.Replicas - 1) / opts.Replicas
	}
	d.pipelines = func(of division, process int) ([]Dataset, bool, error) {
		c, err := read(of, process)
		return []Dataset{c.stream}, c.dealt, err
	}
	// Chunks dealt to the processes come to the same number everywhere.
	d.vote = opts.Processes > 1 && (c.policy != Data || c.rule != Chunks)
	d.settle(c.stream.Info().Spec, ds.Info()) // the undivided dataset's, which is the same on all processes
	return d, nil
}

// checkBatched refuses elements that are known to have no batch axis.
func checkBatched(info Info) error {
	paths := info.Spec.Paths()
	for i, s := range info.Spec.Leaves() {
		if len(s.Dims) == 0 || info.BatchSize == 0 && s.Dims[0] >= 0 {
			return notBatched(paths[i], s)
		}
	}
	return nil
}

// rowsOfBatch is the number of rows of a global batch, as far as it is known, and whether it is
// sure.
func rowsOfBatch(info Info) (rows int, sure bool) {
	if rows = leadingDim(info.Spec); rows >= 1 && info.BatchSize != 0 {
		return rows, true
	}
	return info.BatchSize, !info.recut
}

// parts is a stream of the replicas' parts of batches.
type parts struct {
	stream  Dataset
	policy  Policy
	rule    Rule
	card    Cardinality
	dealt   bool // to the processes of all replicas' parts, one after the other
	global  int  // rows of the batches that are cut, below 1 if not known
	batched bool // they are known to be batches
}

// cut divides what one process of a division reads of a source, and makes its replicas' parts of it.
// For one replica nothing is cut.
func cut(src Source, policy Policy, of division, process int, rule Rule) (p parts, err error) {
	if src, policy, err = divide(src, policy, of.processes, process); err != nil {
		return p, err
	}
	info := src.Info()
	global, sure := rowsOfBatch(info)
	p = parts{stream: Dataset{src}, policy: policy, rule: RuleAuto, card: info.Cardinality, global: global, batched: info.BatchSize != 0}
	if of.replicas <= 1 {
		return p, nil
	}
	if err := checkBatched(info); err != nil {
		return p, err
	}
	if p.rule = rule; rule == RuleAuto {
		p.rule = Sizes
		if policy == Data || global < 1 || !sure {
			p.rule = Chunks
		}
	}
	if p.rule == Sizes && global < 1 {
		return p, wrong("distribute", "batch the dataset with Batch, or use the rule Chunks", "the rule Sizes needs the global batch size, which is not known")
	}
	if p.rule == Chunks {
		p.stream = p.stream.Rebatch(of.replicas)
		if policy != Data {
			p.card = p.card.times(int64(of.processes))
		}
	} else {
		if policy == Data {
			process = 0 // all processes cut alike, then deal
		}
		if global < 1 {
			return p, wrong("distribute", "pass batches with at least one row", "a global batch of %d rows", global)
		}
		sizes, err := BatchSizes(global, of.replicas, of.processes, process)
		if err != nil {
			return p, err
		}
		p.stream = p.stream.RebatchSizes(sizes)
		p.card = p.stream.Info().Cardinality
	}
	p.dealt = policy == Data && of.processes > 1
	return p, p.stream.Err()
}

// settle derives how the input ends: the dataset decides, whatever its cut parts look like.
func (d *DistributedDataset) settle(part Spec, info Info) {
	d.spec = part
	d.full = info.Cardinality == Infinite || staticSpec(info.Spec)
	if info.Cardinality == Infinite {
		d.vote = false
	}
}

// Spec returns the description of one replica's part, which is the same for all replicas:
// TensorFlow's DistributedDataset.element_spec. It is zero if the dataset's is.
func (d *DistributedDataset) Spec() Spec { return d.spec }

// LocalReplicas returns the number of replicas of this process, each of which has an element in
// every step.
func (d *DistributedDataset) LocalReplicas() int { return d.local }

// Layout returns [Options].Layout.
func (d *DistributedDataset) Layout() any { return d.opts.Layout }

// KeepOnHost returns [Options].KeepOnHost.
func (d *DistributedDataset) KeepOnHost() bool { return d.opts.KeepOnHost }

// Policy returns the policy that applies: the options', or the one that Auto chose.
func (d *DistributedDataset) Policy() Policy { return d.policy }

// Rule returns the rule by which batches are cut, and RuleAuto if no batch is cut.
func (d *DistributedDataset) Rule() Rule { return d.rule }

// Cardinality returns the number of steps, as far as it is known beforehand.
func (d *DistributedDataset) Cardinality() Cardinality { return d.card }

// MaxRows returns the largest number of rows that a replica gets in a step: ceil(G/N) for a global
// batch of G rows and N replicas. It is the static size to pad to, and Unknown if the batch size
// is. It does not hold after a Map that changes the number of rows.
func (d *DistributedDataset) MaxRows() int { return d.rows }

// All iterates over the steps of the next pass. It yields an error at most once, as the last pair.
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

// Reduce calls fn for each step of the next pass, with the state that the call before returned, and
// returns the last state. It is TensorFlow's DistributedDataset.reduce.
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
