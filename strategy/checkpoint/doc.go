// Package checkpoint saves the variables of a strategy and restores them, as TensorFlow's
// tf.train.Checkpoint and tf.train.CheckpointManager do: on another number of replicas, under
// another split, or without devices.
//
// # Saving and restoring
//
// A [Group] is a list of variables: those of a GoMLX store ([Store]), the same variables on the
// devices of a strategy with all variables of the strategy's scope ([Strategy]), and any others. A
// [Directory] keeps one checkpoint for each saved step.
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
// The running sums of metrics (those of train's Options.Metrics and of its evaluations) are saved as
// variables of the scope. They mean something only to the same metrics: a step or an evaluation of the
// same name with the same metrics gets them, and with any other, or none, a restore leaves them out
// and what is there as it is. A program may therefore restore before it makes its steps, without
// steps, or with other metrics; sums that find no place are those since the last reset. All other
// variables that a checkpoint lacks, or that nothing takes, are an error that names them.
//
// # Shards, in the background
//
// A [Manager] saves to a folder or to an object store (see package storage), from one process or
// from several, and while the next steps run:
//
//	store, err := storage.Open(ctx, "gs://bucket/run") // or a folder that all processes reach
//	m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{
//		Strategy: strat, Retention: checkpoint.Retention{Last: 3, Each: 1000}})
//	err = m.Save(ctx, step, checkpoint.Strategy(strat, model), checkpoint.SaveOptions{}) // all do
//	...
//	last, err := m.Latest(ctx)
//	err = last.Restore(ctx, checkpoint.Strategy(strat, model), checkpoint.RestoreOptions{})
//	err = m.Close() // waits for the save under way
//
// Save returns when the process's shards are copied off the devices: about 5 GB a second on two
// cores. The rest goes on in the background, and what goes wrong there is the error of the next
// Save, of Wait or of Close ([*BackgroundError]). Every process saves shards of its own, each box
// of each variable once over all processes. Process 0 waits for the parts of the others by looking
// into the store, and then puts the manifest, if the step has none yet. A checkpoint is there when
// its manifest is:
//
//	step-0000000012/<save>/host-0003.safetensors   the shards of process 3
//	step-0000000012/<save>/host-0003.json          what they are, a CRC-32C for each MiB
//	step-0000000012/checkpoint.json                put last; names the save
//	step-0000000012/<save>/void.json               there until then: the save is no checkpoint
//	owner.json                                     the run that saves here
//
// A store needs no rename and no lock. What a killed process leaves has no manifest and is never
// read. A save removes it, as its void.json disowns it, and the checkpoints that the retention drops.
// It removes nothing else: neither what lies beside a manifest that is damaged, of a later version or
// of another step, nor tensors whose manifest is gone. Such a step counts for nothing in the
// retention, and [ManagerOptions].Logger is told of it ([*UnverifiedError]). [Manager.RemoveAfter]
// gives such a manifest another name. A restore needs neither the hosts nor the mesh of the save:
// each process reads the blocks that its devices need. [Manager.Open] also opens what a Directory
// saved, [Open] and Directory also open shards in a folder, and [Checkpoint.Export] makes one plain
// safetensors file of either.
//
// # On the disk
//
// What a Directory saves is
//
//	run/checkpoints/step-0000000012/variables.safetensors
//	run/checkpoints/step-0000000012/checkpoint.json
//
// The tensor file is plain safetensors: any reader of that format can use it. A tensor's name is
// the variable's path without the first slash; of two that would have one name the later gets "_2"
// behind it. checkpoint.json holds the step, the metadata, the properties of variables for which
// safetensors has no place, and checksums (CRC-32C) of the file, of each tensor, and of itself.
// [OpenFile] reads safetensors files of other programs.
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
// is a pipe, a device or a link in the place of a checkpoint's file, and a link in the place of a
// step's folder. Paths are those of the local
// file system; a URL is a [*PathError].
//
// # Trust
//
// The checksums find damage, not malice: whoever can write to the directory can give a model other
// values. A checkpoint holds no code, and reading a checkpoint runs none.
//
// # Memory
//
// A Directory reads and writes variables one at a time, so that a save holds about one variable in
// host memory. A Manager's save holds the process's own shards, once, and keeps that memory for the
// next save until Close; a Save waits for the one before it. A restore holds a sixteenth of what
// the process's devices get, or one part; other variables are restored one at a time. Where the
// devices have room, variables that have values there keep them until everything has been read and
// compared.
//
// # Several processes
//
// With a Manager all processes make the same calls of Save. With a Directory one process saves and
// the others call [Follow] at the same point, because all processes read some variables together.
// All processes restore at the same point, each for its own devices, and none of them changes
// anything if one finds damage.
package checkpoint
