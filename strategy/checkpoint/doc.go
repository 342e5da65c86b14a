// Package checkpoint saves the variables of a strategy and restores them: on
// another number of replicas, under another split, or with no devices at all.
//
// # Saving and restoring
//
// A [Group] is a list of variables: those of a GoMLX store ([Store]), the same where
// a strategy has them on its devices ([Strategy]), and any others. A [Directory]
// keeps one checkpoint for each saved step.
//
//	dir, err := checkpoint.OpenDirectory("run/checkpoints", checkpoint.Options{Keep: 3})
//	err = dir.Save(ctx, step, checkpoint.Strategy(strat, store), checkpoint.SaveOptions{})
//	...
//	last, err := dir.Latest() // matches ErrNone in a new directory
//	defer last.Close()
//	err = last.Restore(ctx, checkpoint.Strategy(strat, store), checkpoint.RestoreOptions{})
//
// A restore may come before the first step: it fills the store, from where the
// variables go to the devices.
//
// # What is saved
//
// A checkpoint holds global values, not shards: how variables are split and how
// many replicas there are leaves no trace in it. A mirrored variable is saved once,
// from replica 0. A sync-on-read variable follows TensorFlow's rules, with R
// replicas when it is saved and N when it is restored:
//
//	aggregation           saved                  restored to each replica
//	SUM                   sum of the components  saved / N (integers truncate)
//	MEAN                  their mean             saved
//	ONLY_FIRST_REPLICA    replica 0's            saved
//	NONE                  an error               an error
//
// The rule of a restore is that of the variable that is restored: a plain variable
// receives the combined value, and a sum keeps its total on any N, but for
// what integers truncate.
//
// # On the disk
//
//	run/checkpoints/step-0000000012/variables.safetensors
//	run/checkpoints/step-0000000012/checkpoint.json
//
// The tensor file is plain safetensors: any reader of that format can use it. A
// tensor's name is the variable's path without the first slash. checkpoint.json has
// the step, the metadata, what the tensor file cannot say of a variable, and
// checksums (CRC-32C) of the file, of each tensor, and of itself. [OpenFile] reads
// safetensors files of other programs.
//
// # Failure
//
// A save writes beside the earlier checkpoints, brings its files to the disk, and
// then renames its directory: a killed process, a full disk or a loss of power
// leaves the earlier checkpoints as they were, and what it left of the new one is
// cleared away by the next save. Old checkpoints are removed after that, whole. One
// process saves to a directory at a time ([ErrBusy]); any number may read. Two runs that
// were given the same directory do not mix their checkpoints: the second one's save is an
// [*OwnerError], which names the first.
//
// Damaged and cut files are refused with errors that match [ErrCorrupt], before any
// variable changes. So are pipes, devices and links in the place of a checkpoint's files.
// Paths are those of the local file system; a URL is a [*PathError].
//
// # Trust
//
// The checksums find damage, not malice: who can write to the directory can give a model
// other values. A checkpoint holds no code, and reading one runs none.
//
// # Memory
//
// Variables are read, written and restored one at a time, so that the host holds
// about one of them besides what it holds anyway.
//
// # Many hosts
//
// Of the processes that share a strategy one saves, and the others call [Follow] at
// the same point: some variables are read by all of them together. All restore from
// the same directory, each its own devices.
package checkpoint
