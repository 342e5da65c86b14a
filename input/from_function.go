package input

import (
	"github.com/tpustrategy/tpustrategy/errkind"
)

// FromFunction makes input from a function that returns, for one process, a dataset of batches for
// single replicas, as TensorFlow's distribute_datasets_from_function does. FromFunction calls fn
// once, with this process's [Context]; each replica takes the next element in turn. With the
// replication PerReplica it calls fn once for each replica of this process; each replica then has a
// pipeline of its own, and the Context counts replicas as pipelines. A pass that goes on from a
// position of other processes or replicas calls fn with their Contexts, and shares out what their
// datasets yield: fn depends on its Context alone.
//
// Data that ends within a step is treated as in [Distribute]. The datasets of all processes need
// the same spec, and must all be infinite or all be finite: no process asks another how its data
// ends. A panic of fn becomes a [*errkind.PanicError].
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

// fromContexts are the datasets of some contexts, which must have one spec.
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

// rowsOfPart is the largest number of rows of a replica's batches, as far as it is known.
func rowsOfPart(info Info) int {
	rows := leadingDim(info.Spec)
	if rows < 0 && info.BatchSize > 0 {
		rows = info.BatchSize
	}
	return rows
}
