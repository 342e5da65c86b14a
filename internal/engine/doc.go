// Package engine runs compiled programs on groups of devices and places tensors on the devices.
//
// A [Layout] describes the shard of a tensor on each device. A [Runtime] compiles programs, copies
// tensors to and from its devices, orders the launches of programs, and exchanges messages between
// the processes of a job. A runtime for a slice that is not attached ([NewDescribedRuntime]) only
// compiles.
//
// A group is the logical devices of one replica, or all devices. A partition is the index of a
// device over all groups. The package does not depend on variables, contexts or graphs. Packages
// strategy and gomlx use it.
package engine
