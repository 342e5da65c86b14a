// Package checkpoint saves the variables of a strategy and restores them, as TensorFlow's
// tf.train.Checkpoint and tf.train.CheckpointManager do: on another number of replicas, under
// another split, or without devices.
//
// # Saving and restoring
//
// A [Group] is a list of variables: those of a GoMLX store ([Store]), the same variables on the
// devices of a strategy with all variables of the strategy's scope ([Strategy]), and any others. A
// [Manager] keeps one checkpoint for each saved step, in a folder or in an object store (see package
// storage), from one process or from several.
//
//	m, err := checkpoint.OpenManager(ctx, "gs://bucket/run", checkpoint.ManagerOptions{ // or a folder
//		Strategy: strat, Retention: checkpoint.Retention{Last: 3, Each: 1000}})
//	err = m.Save(ctx, step, checkpoint.Strategy(strat, model), checkpoint.SaveOptions{}) // all do
//	...
//	last, err := m.Latest(ctx) // matches ErrNone in a new place
//	err = last.Restore(ctx, checkpoint.Strategy(strat, model), checkpoint.RestoreOptions{})
//	err = m.Close() // waits for the save under way
//
// A restore may come before the first step: it then fills the store, and the first step takes the
// variables from there to the devices.
//
// # What is saved
//
// A checkpoint holds global values: it does not matter to a restore how variables were split or how
// many replicas there were. A mirrored variable is saved once. A sync-on-read variable follows
// TensorFlow's rules, with R replicas when it is saved and N when it is restored:
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
// # In the background
//
// Save returns when the process's shards are copied off the devices: about 5 GB a second on two
// cores. The rest goes on in the background, and what goes wrong there is the error of the next
// Save, of Wait or of Close ([*BackgroundError]). A program that is to know at once calls Wait after
// Save.
//
// # In the store
//
// Every process saves shards of its own, each box of each variable once over all processes. Process 0
// waits for the parts of the others by looking into the store, and then puts the manifest, if the
// step has none yet. A checkpoint is there when its manifest is:
//
//	step-0000000012/<save>/host-0003.safetensors   the shards of process 3
//	step-0000000012/<save>/host-0003.json          what they are, a CRC-32C for each MiB
//	step-0000000012/checkpoint.json                put last; names the save
//	step-0000000012/<save>/void.json               there until then: the save is no checkpoint
//	owner.json                                     the run that saves here
//
// The tensor files are plain safetensors: any reader of that format can use them. A tensor's name is
// the variable's path without the first slash, with the indices where it is a part of it; of two that
// would have one name the later gets "_2" behind it. [Checkpoint.Export] makes one file of a
// checkpoint of any number of processes, and [OpenFile] reads safetensors files of other programs.
// [Manager.Open] also opens what earlier versions of this package saved as one file for each step.
//
// # Failure
//
// A store needs no rename and no lock. A killed process, a full disk or a loss of power leaves the
// earlier checkpoints as they were. What a killed process leaves has no manifest and is never read.
// A save removes it, as its void.json disowns it, and the checkpoints that the retention drops. It
// removes nothing else: neither what lies beside a manifest that is damaged, of a later version or
// of another step, nor tensors whose manifest is gone. Such a step counts for nothing in the
// retention, and [ManagerOptions].Logger is told of it. [Manager.RemoveAfter] gives such a manifest
// another name.
//
// One run saves to a place at a time, and any number of processes may read: a second run's save
// returns an [*OwnerError], which names the first run.
//
// A damaged or cut file is an error that matches [ErrCorrupt], before any variable changes, and so
// is a pipe, a device or a link in the place of a checkpoint's file, and a link in the place of a
// step's folder.
//
// # Trust
//
// The checksums find damage, not malice: whoever can write to the place can give a model other
// values. A checkpoint holds no code, and reading a checkpoint runs none.
//
// # Memory
//
// A save holds the process's own shards, once, and keeps that memory for the next save until Close;
// a Save waits for the one before it. A restore holds a sixteenth of what the process's devices get,
// or one part; other variables are restored one at a time. Where the devices have room, variables
// that have values there keep them until everything has been read and compared.
//
// # Several processes
//
// All processes make the same calls of Save, and all restore at the same point, each the blocks that
// its devices need; neither the hosts nor the mesh of the save are needed. None of them changes
// anything if one finds damage.
//
// # Who starts the program again
//
// Where the environment names a file by TPUSTRATEGY_SAVED, a Manager writes into it the number of the
// last step that this process has saved its part of. So a script of `tpustrategy launch` sees whether
// a program that failed had got on since it was started.
package checkpoint
