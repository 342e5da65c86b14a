// Package replay takes a step twice from the same state and the same batch, and compares what it
// leaves on the devices: a device that computes, keeps or is sent a wrong bit now and then, and says
// nothing, is found, before a checkpoint holds what it did.
//
// Steps of this module are the same to the last bit when they are repeated on the same devices.
// Package fit has it as a hook:
//
//	fit.Run(ctx, step, data, options, fit.Replay(500), fit.Checkpoint("checkpoints", 500))
//
// A loop of one's own calls [Step] in the place of a launch.
//
// # What is compared
//
// Before the step, the replicas' copies of each variable that is mirrored. After it, what each device
// holds of each variable, with what it holds after the step has been taken again. A wrong bit in a
// variable of one replica differs from the other replicas' copies. One in a batch, an activation or
// a gradient gives the step other results than its repetition; where it has entered a sum over the
// replicas, all of them have those. What one replica alone holds, of state in parts, and a wrong
// value that is in the host's batch or comes both times, cannot be told from a right one.
//
// # Cost
//
// A replayed step takes as long as two, and copies what the devices hold of all variables three times
// to the host and once back; the host holds two of these copies meanwhile.
package replay
