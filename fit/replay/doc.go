// Package replay runs a step twice from the same state and the same batch, and compares the results
// on the devices. It detects a device that occasionally computes, stores or receives a wrong bit
// without reporting an error, before the result is saved in a checkpoint.
//
// Steps of this module are deterministic to the last bit when they are repeated on the same
// devices. Package fit provides replays as a hook:
//
//	fit.Run(ctx, step, data, options, fit.Replay(500), fit.Checkpoint("checkpoints", 500))
//
// A custom loop calls [Step] instead of launching the step.
//
// # Comparisons
//
// Before the step, the replicas' copies of each mirrored variable are compared with each other.
// After the step, the bytes of each variable on each device are compared with the bytes after the
// repeated step. A wrong bit in one replica's copy of a variable is a difference between the
// replicas. A wrong bit in a batch, an activation or a gradient is a difference between the step
// and its repetition; if the wrong value was summed over the replicas, all replicas differ. Two
// kinds of errors cannot be detected: a wrong bit in state that only one replica stores, such as
// sharded state, and a wrong value that is in the host's batch or occurs both times.
//
// # Cost
//
// A replayed step takes as long as two steps. In addition, all variables are copied from the
// devices to the host three times and back once. The host's memory contains two of these copies at
// a time.
package replay
