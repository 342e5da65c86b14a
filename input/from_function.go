package input

import (
	"github.com/tpustrategy/tpustrategy/errkind"
)

// FromFunction distributes the datasets that fn returns, like TensorFlow's
// distribute_datasets_from_function. It calls fn once, with this process's [Context]. The elements of
// the dataset must be batches for one replica. The process assigns them to its replicas in round-robin
// order.
//
// With the replication PerReplica, it calls fn once for each replica of this process, and the Context
// counts replicas as pipelines. If a pass resumes with other numbers of processes or replicas, fn is
// called with the Contexts of the saved run. The result of fn must therefore depend only on the
// Context.
//
// If the data ends within a step, FromFunction behaves like [Distribute]. The datasets of all processes
// must have the same spec. They must be all infinite or all finite, because a process with an infinite
// dataset does not vote on the end of the data. If fn panics, the error is a [*errkind.PanicError].
func FromFunction(fn func(Context) (Dataset, error), opts Options) (*DistributedDataset, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, valueError("from function", "give one", "the function is nil")
	}
	if opts.PlaceOnDevice {
		return nil, unsupportedError("from function", "leave PlaceOnDevice out", "pipelines run on the host")
	}
	if opts.Replication == PerReplica && opts.PerWorkerOnly {
		return nil, unsupportedError("from function", "use the replication PerWorker",
			"this strategy has one pipeline for each process, not PerReplica")
	}
	d := &DistributedDataset{opts: opts, localReplicas: opts.Replicas / opts.Processes, policy: Off, maxRows: Unknown,
		isBatched: true}
	d.newStreams = func(job jobSize, process int) ([]Dataset, bool, error) {
		contexts := []Context{{job.processes, process, job.replicas}}
		if opts.Replication == PerReplica {
			contexts = nil
			for i := range job.localReplicas() {
				contexts = append(contexts, Context{job.replicas, process*job.localReplicas() + i, job.replicas})
			}
		}
		streams, err := createDatasets(fn, contexts)
		return streams, false, err
	}
	if d.streams, _, err = d.newStreams(jobSize{opts.Replicas, opts.Processes}, opts.Process); err != nil {
		return nil, err
	}
	merged := d.streams[0].Info()
	for _, ds := range d.streams[1:] {
		own := ds.Info()
		merged.Spec, _ = mergeSpecs(merged.Spec, own.Spec)
		if merged.Cardinality != own.Cardinality {
			merged.Cardinality = UnknownCardinality
		}
	}
	d.needsVote = opts.Processes > 1
	d.maxRows = maxPartRows(merged)
	d.setEndBehavior(merged.Spec, merged)
	d.cardinality = UnknownCardinality
	if merged.Cardinality == Infinite {
		d.cardinality = Infinite
	} else if n := Cardinality(d.localReplicas / len(d.streams)); merged.Cardinality >= 0 && opts.Processes == 1 &&
		len(d.streams) == 1 {
		d.cardinality = merged.Cardinality / n
		if !d.needsAllReplicas && merged.Cardinality%n != 0 {
			d.cardinality++
		}
	}
	return d, nil
}

// createDatasets calls fn for each context. It returns an error if the specs are not compatible.
func createDatasets(fn func(Context) (Dataset, error), contexts []Context) (streams []Dataset, err error) {
	var merged Spec
	for i, c := range contexts {
		ds, err := callDatasetFunc(fn, c)
		if err == nil {
			err = ds.Err()
		}
		if err != nil {
			return nil, wrapError("dataset of", c.String(), err)
		}
		streams = append(streams, ds)
		elementSpec := ds.Info().Spec
		if i == 0 {
			merged = elementSpec
			continue
		}
		mergedSpec, ok := mergeSpecs(merged, elementSpec)
		if !ok && !merged.IsZero() && !elementSpec.IsZero() {
			return nil, valueError("from function", "give all replicas elements of the same spec",
				"the dataset of %v has elements %v, an earlier one %v", c, elementSpec, merged)
		}
		merged = mergedSpec
	}
	return streams, nil
}

func callDatasetFunc(fn func(Context) (Dataset, error), c Context) (ds Dataset, err error) {
	defer errkind.Recover("input: the function of FromFunction", &err)
	return fn(c)
}

// maxPartRows returns the largest number of rows of a replica's batch, or less than 1 if it is
// unknown.
func maxPartRows(info Info) int {
	rows := leadingDim(info.Spec)
	if rows < 0 && info.BatchSize > 0 {
		rows = info.BatchSize
	}
	return rows
}
