// Package input prepares training data on the hosts: it reads datasets, cuts their batches for the replicas, and divides
// them between hosts, by the rules of TensorFlow's tf.distribute.
//
// It is pure Go and knows no devices. What it yields for each step is one [Element], a nest of host tensors, for each
// replica of this host; a strategy sends them on.
//
// # Datasets
//
// A [Dataset] is a description that can be opened any number of times. Sources are memory ([Range], [FromSlices],
// [FromElements]), Go iterators ([FromSeq]), files ([Lines], [CSV], [TFRecords], [FixedRecords]) and anything that
// implements [Source]. Operations make new datasets: Batch, Unbatch, Map, Shuffle, Repeat, Take, Skip, Shard, Concatenate,
// Cache, Prefetch.
//
// # Distribution
//
// [Distribute] takes a dataset batched with the global batch size, [FromFunction] a function that makes a dataset of
// replica batches for each host. Two rules cut a global batch of G rows for N replicas:
//
//	range(10).batch(8), N=4    Chunks (data in memory)      Sizes (data in files, policy Off)
//	first batch                [0 1] [2 3] [4 5] [6 7]      [0 1] [2 3] [4 5] [6 7]
//	last batch, two rows       [8] [9] [] []                [8 9] [] [] []
//
// A policy says what each host reads: [Auto] gives hosts different files if there are files, and deals the cut batches to
// them otherwise. Rows are never split along another axis than the batch axis: data without one is a [NotBatchedError].
//
// # The end of the data
//
// A last step that has no data for some replicas gives them empty batches, see [Step]. Batch with dropRemainder makes all
// shapes known and leaves such a step out. [Pad] and [PadStep] bring short batches to a fixed shape with a mask.
//
// # Positions
//
// Iterators and [Steps] tell their position as a [State], small plain data, from which they resume exactly: in the middle
// of an epoch, a batch, or a shuffle; on one host also for another number of replicas. Random order depends on seed and
// epoch only.
//
// # Failure
//
// An error of a function or a source comes out of Next, after the elements before it, and is the answer from then on. So
// does a panic, as a [PanicError], whichever goroutine it was on: the process goes on.
package input
