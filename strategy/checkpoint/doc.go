// Package checkpoint saves the variables of a strategy and restores them, as TensorFlow's
// tf.train.Checkpoint and tf.train.CheckpointManager do: on another number of replicas, under
// another split, or without devices.
//
// # Saving and restoring
//
// A [Group] is a list of variables: those of a GoMLX store ([Store]), the same variables on the
// devices of a strategy ([Strategy]), and any others. A [Directory] keeps one checkpoint for each
// saved step.
//
//	dir, err := checkpoint.OpenDirectory("run/checkpoints", checkpoint.Options{Keep: 3})
//	err = dir.Save(ctx, step, checkpoint.Strategy(strat, store), checkpoint.SaveOptions{})
//	...
//	last, err := dir.Latest() // matches ErrNone in a new directory
//	defer last.Close()
//	err = last.Restore(ctx, checkpoint.Strategy(strat, store), checkpoint.RestoreOptions{})
//
// A restore may come before the first step: it then fills the store, and the first step takes the
// variables from there to the devices.
//
// # What is saved
//
// A checkpoint holds global values, not shards: it does not record how variables are split or how
// many replicas there are. A mirrored variable is saved once, from replica 0. A sync-on-read
// variable follows TensorFlow's rules, with R replicas when it is saved and N when it is restored:
//
//	aggregation           saved                  restored to each replica
//	SUM                   sum of the components  saved / N (integers truncate)
//	MEAN                  their mean             saved
//	ONLY_FIRST_REPLICA    replica 0's            saved
//	NONE                  an error               an error
//
// A restore follows the rule of the variable that is restored. A plain variable receives the
// combined value. A sum keeps its total on any N, except for what integers truncate.
//
// # On the disk
//
//	run/checkpoints/step-0000000012/variables.safetensors
//	run/checkpoints/step-0000000012/checkpoint.json
//
// The tensor file is plain safetensors: any reader of that format can use it. A tensor's name is
// the variable's path without the first slash. checkpoint.json holds the step, the metadata, the
// properties of variables for which safetensors has no place, and checksums (CRC-32C) of the file,
// of each tensor, and of itself. [OpenFile] reads safetensors files of other programs.
//
// # Failure
//
// A save writes beside the earlier checkpoints, brings its files to the disk, and then renames its
// directory. A killed process, a full disk or a loss of power leaves the earlier checkpoints as
// they were, and the next save clears away the unfinished one. After that a save removes old
// checkpoints, each as a whole. One process saves to a directory at a time ([ErrBusy]); any number
// of processes may read. Two runs with the same directory do not mix their checkpoints: the second
// run's save returns an [*OwnerError], which names the first run.
//
// A damaged or cut file is an error that matches [ErrCorrupt], before any variable changes, and so
// is a pipe, a device or a link in the place of a checkpoint's file. Paths are those of the local
// file system; a URL is a [*PathError].
//
// # Trust
//
// The checksums find damage, not malice: whoever can write to the directory can give a model other
// values. A checkpoint holds no code, and reading a checkpoint runs none.
//
// # Memory
//
// Variables are read, written and restored one at a time, so a save or a restore holds about one
// variable in host memory.
//
// # Several processes
//
// If several processes share a strategy, one process saves and the others call [Follow] at the same
// point, because all processes read some variables together. All processes restore from the same
// directory, each for its own devices.
package checkpoint
