package input

import (
	"github.com/tpustrategy/tpustrategy/errkind"
)

// FromFunction returns the distributed dataset of a function that returns a dataset of replica
// batches, like TensorFlow's distribute_datasets_from_function. It calls fn once, with this
// process's [Context], and the process's replicas receive the elements in turn. With the
// replication PerReplica it calls fn once for each replica of this process. Each replica then has
// its own pipeline, and the Context counts replicas as pipelines. A pass that resumes from a
// position with other numbers of processes or replicas calls fn with the Contexts of that position.
// The result of fn must therefore depend on the Context only.
//
// If the data ends within a step, FromFunction behaves like [Distribute]. The datasets of all
// processes must have the same spec, and must be all infinite or all finite, because a process with
// an infinite dataset takes part in no vote on the end. If fn panics, the error is a
// [*errkind.PanicError].
func FromFunction(fn func(Context) (Dataset, error), opts Options) (*DistributedDataset, error) {
	opts, err := opts.normalize()
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, wrong("from function", "give one", "the function is nil")
	}
	if opts.PlaceOnDevice {
		return nil, unsupported("from function", "leave PlaceOnDevice out", "pipelines run on the host")
	}
	if opts.Replication == PerReplica && opts.ProcessPipelines {
		return nil, unsupported("from function", "use the replication PerWorker", "this strategy has one pipeline for each process, not PerReplica")
	}
	d := &DistributedDataset{opts: opts, local: opts.Replicas / opts.Processes, policy: Off, rows: Unknown, batched: true}
	d.pipelines = func(of division, process int) ([]Dataset, bool, error) {
		contexts := []Context{{of.processes, process, of.replicas}}
		if opts.Replication == PerReplica {
			contexts = nil
			for i := range of.local() {
				contexts = append(contexts, Context{of.replicas, process*of.local() + i, of.replicas})
			}
		}
		streams, err := fromContexts(fn, contexts)
		return streams, false, err
	}
	if d.streams, _, err = d.pipelines(division{opts.Replicas, opts.Processes}, opts.Process); err != nil {
		return nil, err
	}
	all := d.streams[0].Info()
	for _, ds := range d.streams[1:] {
		info := ds.Info()
		all.Spec, _ = merge(all.Spec, info.Spec)
		if all.Cardinality != info.Cardinality {
			all.Cardinality = UnknownCardinality
		}
	}
	d.vote = opts.Processes > 1
	d.rows = rowsOfPart(all)
	d.settle(all.Spec, all)
	d.card = UnknownCardinality
	if all.Cardinality == Infinite {
		d.card = Infinite
	} else if n := Cardinality(d.local / len(d.streams)); all.Cardinality >= 0 && opts.Processes == 1 && len(d.streams) == 1 {
		d.card = all.Cardinality / n
		if !d.full && all.Cardinality%n != 0 {
			d.card++
		}
	}
	return d, nil
}

// fromContexts calls fn for each context. The datasets must have compatible specs.
func fromContexts(fn func(Context) (Dataset, error), contexts []Context) (streams []Dataset, err error) {
	var all Spec
	for i, c := range contexts {
		ds, err := pipeline(fn, c)
		if err == nil {
			err = ds.Err()
		}
		if err != nil {
			return nil, within("dataset of", c.String(), err)
		}
		streams = append(streams, ds)
		own := ds.Info().Spec
		if i == 0 {
			all = own
			continue
		}
		spec, ok := merge(all, own)
		if !ok && !all.IsZero() && !own.IsZero() {
			return nil, wrong("from function", "give all replicas elements of the same spec", "the dataset of %v has elements %v, an earlier one %v", c, own, all)
		}
		all = spec
	}
	return streams, nil
}

func pipeline(fn func(Context) (Dataset, error), c Context) (ds Dataset, err error) {
	defer errkind.Recover("input: the function of FromFunction", &err)
	return fn(c)
}

// rowsOfPart returns the largest number of rows of a replica's batches, or a value below 1 if it is
// unknown.
func rowsOfPart(info Info) int {
	rows := leadingDim(info.Spec)
	if rows < 0 && info.BatchSize > 0 {
		rows = info.BatchSize
	}
	return rows
}
