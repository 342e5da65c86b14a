// Package checkpoint saves and restores the variables of a strategy, like TensorFlow's
// tf.train.Checkpoint and tf.train.CheckpointManager. A checkpoint can be restored on a different
// number of replicas, with different sharding, or without devices.
//
// # Saving and restoring
//
// A [Group] is a list of variables. [StoreGroup] returns the variables of a GoMLX store.
// [StrategyGroup] returns the variables of a store, on the devices of a strategy, and all variables
// of the strategy's scope. A [Manager] keeps one checkpoint for each saved step, in a folder or in
// an object store (see package storage), for one process or for several.
//
//	m, err := checkpoint.OpenManager(ctx, "gs://bucket/run", checkpoint.ManagerOptions{ // or a folder
//		Strategy: strat, Retention: checkpoint.Retention{Last: 3, Every: 1000}})
//	err = m.Save(ctx, step, checkpoint.StrategyGroup(strat, model), checkpoint.SaveOptions{}) // on all processes
//	...
//	last, err := m.Latest(ctx) // matches ErrNotFound in an empty store
//	err = last.Restore(ctx, checkpoint.StrategyGroup(strat, model), checkpoint.RestoreOptions{})
//	err = m.Close() // waits for the running save
//
// A program may restore before the first step. The restore then fills the store, and the first step
// copies the variables from the store to the devices.
//
// # Saved values
//
// A checkpoint contains global values. A restore does not depend on how variables were sharded or
// how many replicas there were. A mirrored variable is saved once. A sync-on-read variable follows
// TensorFlow's rules, with R replicas at the save and N at the restore:
//
//	aggregation           saved                  restored to each replica
//	SUM                   sum of the components  saved / N (integers truncate)
//	MEAN                  mean of the components saved
//	ONLY_FIRST_REPLICA    replica 0's            saved
//	NONE                  an error               an error
//
// A restore uses the rule of the variable that is restored. A plain variable receives the combined
// value. A sum keeps its total for any N, except for the truncation of integers.
//
// The running sums of metrics (train's Options.Metrics and those of evaluations) are saved as variables
// of the scope. They are restored only to a step or evaluation of the same name with the same metrics.
// For any other step a restore ignores the saved sums and leaves the current ones unchanged. A program
// may therefore restore before it creates its steps, without steps, or with other metrics. Sums that
// were not restored count from the last reset. For every other variable, a restore returns an error
// with the variable's name if only the checkpoint or only the group has it.
//
// # Background saves
//
// Save returns after the process's shards are copied from the devices, at about 5 GB per second on
// two cores. The save continues in the background. The next Save, Wait or Close returns its error,
// a [*BackgroundError]. A program that needs the error immediately calls Wait after Save.
//
// # Files
//
// Every process saves its own shards. Over all processes each box of each variable is saved once.
// Process 0 polls the store for the other processes' parts and then writes the manifest, unless the
// step already has one. A checkpoint exists when its manifest exists:
//
//	step-0000000012/<save>/host-0003.safetensors   the shards of process 3
//	step-0000000012/<save>/host-0003.json          their description, with a CRC-32C for each MiB
//	step-0000000012/checkpoint.json                the manifest, written last; names the save
//	step-0000000012/<save>/void.json               exists before the manifest: the save is incomplete
//	owner.json                                     the run that saves to this store
//
// The tensor files are plain safetensors files for any reader of that format. A tensor's name is
// the variable's path without the first slash, followed by an index range if the tensor is a shard.
// If two variables would have the same name, the later one gets the suffix "_2".
// [Checkpoint.Export] writes a checkpoint of any number of processes as one file, and [OpenFile]
// reads safetensors files of other programs. [Manager.Open] also opens checkpoints of earlier
// versions of this package, which have one file for each step.
//
// # Failures
//
// The store needs neither renames nor locks. A killed process, a full disk or a power loss does not
// affect earlier checkpoints. Files of a killed process have no manifest and are never read. A
// later save removes them, because their void.json marks them as incomplete, and removes the
// checkpoints that the retention drops. It removes nothing else. Files next to a manifest that is
// damaged, was written by a later version or belongs to another step remain, and so do tensors
// whose manifest is missing. The retention ignores such a step, and [ManagerOptions].Logger
// receives a warning. [Manager.RemoveAfter] renames such a manifest.
//
// Only one run at a time may save to a store; any number of processes may read. A save of a second
// run returns an [*OwnerError] that names the first run.
//
// For a damaged or truncated file the error matches [ErrCorrupt], and no variable has changed. The
// same holds for a pipe, device or link in place of a checkpoint's file, and for a link in place of
// a step's folder.
//
// # Trust
//
// The checksums detect damage, not malice: whoever can write to the store can change a model's
// values. A checkpoint contains no code, and reading a checkpoint runs none.
//
// # Memory
//
// A save holds one copy of the process's own shards in host memory, and the manager keeps that
// memory for the next save until Close. A Save waits for the previous one. A restore to devices
// holds a sixteenth of the bytes of the process's devices, or one part if a part is larger. Other
// variables are restored one at a time. If the devices have enough memory, variables that have
// values on the devices keep them until all new values have been read and verified.
//
// # Several processes
//
// All processes make the same calls of Save. For a restore, all processes call Restore at the same
// point, and each reads the blocks that its devices need. Neither the hosts nor the mesh of the
// save are needed. If one process finds damage, no process changes a variable.
//
// # Progress file for restarts
//
// If the environment variable TPUSTRATEGY_SAVED contains a file name, a Manager writes to this file
// the number of the last step whose part this process has saved. A script of `tpustrategy launch`
// can thus detect whether a failed program had made progress since its start.
package checkpoint
