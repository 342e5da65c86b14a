// Package input prepares training data on the processes: it reads datasets, cuts their batches for
// the replicas, and divides the data between processes, by the rules of TensorFlow's tf.data and
// tf.distribute.
//
// The package is pure Go and knows no devices. For each step it yields one [Element], a nest of
// host tensors, for each replica of this host. A strategy sends the elements to the devices.
//
// # Datasets
//
// A [Dataset] is a description that can be opened any number of times. Sources are memory ([Range],
// [FromSlices], [FromElements]), Go iterators ([FromSeq]), files ([Lines], [CSV], [TFRecords],
// [FixedRecords]) and anything that implements [Source]. Operations make new datasets: Batch,
// Unbatch, Map, Shuffle, Repeat, Take, Skip, Shard, Concatenate, Zip, Cache, Prefetch.
//
// # Distribution
//
// [Distribute] takes a dataset batched with the global batch size, [FromFunction] a function that
// makes a dataset of replica batches for each process. Two rules cut a global batch of G rows for N
// replicas:
//
//	range(10).batch(8), N=4    Chunks (data in memory)      Sizes (data in files, policy Off)
//	first batch                [0 1] [2 3] [4 5] [6 7]      [0 1] [2 3] [4 5] [6 7]
//	last batch, two rows       [8] [9] [] []                [8 9] [] [] []
//
// A [Policy] says what each process reads: [Auto] gives each process other files if there are
// files, and otherwise deals the cut batches to the processes. Batches are only ever split along
// the batch axis: data without a batch axis matches [ErrNotBatched].
//
// # The end of the data
//
// If the last step has no data for some replicas, these get empty batches (see [Step]). Batch with
// dropRemainder makes all shapes known and leaves such a step out. [Pad] and [PadStep] bring short
// batches to a fixed shape and return a mask.
//
// # Positions
//
// Iterators and [Steps] return their position as a [State], which is small plain data. A dataset
// opened at a State resumes exactly there: in the middle of an epoch, a batch or a shuffle. A random
// order depends on seed and epoch only.
//
// [JoinStates] makes one position of those of all processes. Any number of processes and replicas
// goes on from it, with each element that was not used once, and the same global batches: until the
// pass ends they share out the pipelines that the run had, and cut what these yield anew. Data that
// a process chooses by its own number outside of [FromFunction] cannot be shared out so: give
// [Distribute] the same dataset on all processes.
//
// # Failure
//
// Next returns the error of a function or a source after the elements before it, and returns it
// again from then on. A panic becomes a [*errkind.PanicError], on whichever goroutine it was, and the
// process goes on.
package input
