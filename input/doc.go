// Package input prepares training data on the hosts. It reads datasets, divides the data between
// processes and splits batches between replicas, by the rules of TensorFlow's tf.data and
// tf.distribute.
//
// The package is pure Go and does not use devices. For each step it yields one [Element], a nest of
// host tensors, for each replica of this process. A strategy transfers the elements to the devices.
//
// # Datasets
//
// A [Dataset] is a description that can be opened any number of times. Sources are memory ([Range],
// [FromSlices], [FromElements]), Go iterators ([FromSeq]), files ([Lines], [CSV], [TFRecords],
// [FixedRecords]) and anything that implements [Source]. Operations return new datasets: Batch,
// Unbatch, Map, Shuffle, Repeat, Take, Skip, Shard, Concatenate, Zip, Cache, Prefetch.
//
// # Distribution
//
// [Distribute] expects a dataset that is batched with the global batch size. [FromFunction] expects
// a function that returns a dataset of replica batches for each process. Two rules split a global
// batch between N replicas:
//
//	range(10).batch(8), N=4    Chunks (data in memory)      Sizes (data in files, policy Off)
//	first batch                [0 1] [2 3] [4 5] [6 7]      [0 1] [2 3] [4 5] [6 7]
//	last batch, two rows       [8] [9] [] []                [8 9] [] [] []
//
// An [AutoShardPolicy] selects the data that each process reads. [Auto] assigns different files to
// each process if the dataset reads files; otherwise every process reads all data and uses its
// replicas' parts. Batches are split only along the batch axis. Data without a batch axis is an
// error that matches [ErrNotBatched].
//
// # The end of the data
//
// If the last step has no data for some replicas, these replicas receive empty batches (see
// [Step]). After Batch with dropRemainder all shapes are known, and such a step is omitted. [Pad]
// and [PadStep] pad short batches to a fixed shape and return a mask.
//
// # Positions
//
// Iterators and [Steps] return their position as a [State], which is small and can be stored as
// JSON. A dataset opened at a State resumes exactly there, even in the middle of an epoch, a batch
// or a shuffle. A random order depends only on the seed and the epoch.
//
// [JoinStates] merges the positions of all processes. A run with any number of processes and
// replicas can resume from the result. It uses each remaining element once, in the same global
// batches. Until the pass ends, the processes divide the pipelines of the original run and re-split
// their batches. This requires that all processes pass the same dataset to [Distribute]: a dataset
// that depends on the process's index is only possible with [FromFunction].
//
// # Failure
//
// Next returns the error of a function or a source after the elements that precede it, and returns
// the same error from then on. A panic on any goroutine of the pipeline becomes a
// [*errkind.PanicError], and the process continues.
package input
