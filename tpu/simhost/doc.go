// Package simhost simulates the processes of a slice on one CPU client, so that code for several
// hosts can be tested on one machine.
//
// # Simulation
//
// A [Cluster] distributes the devices of an open system over its processes. Each process is a
// [system.Runtime] that has all devices and can address its own. It compiles for all devices,
// transfers data to and from its own devices, and launches programs with its own arguments. A
// launch of a program that spans processes waits until all of them have launched it, and runs once
// with the arguments of all processes. Tensors, compiler and collectives are real.
//
// # Differences from a slice
//
// All processes share one address space and one client. A launch blocks until the other processes have
// launched the program; on a TPU, a launch returns at once, and its results wait. Equal programs are
// compiled once. The network has no delays or losses, and the end of a process is detected at once.
//
// # Errors
//
// A slice hangs if a process is missing. In a cluster, a wait ends at the deadline of its context
// or after [Options.Patience], with an error that names the processes: [*MissingError] for
// processes that did not arrive, [*ProgramError] for processes that launch a different program, and
// [*LostError] for a process that ended. The cluster is broken then, and every later launch over
// several processes returns the same error.
package simhost
