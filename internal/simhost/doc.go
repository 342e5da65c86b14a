// Package simhost simulates the processes of a slice on one CPU client, so that what hosts do
// together can be run on one machine.
//
// # What is simulated
//
// A [Cluster] deals the devices of an open system to its processes. Each process is a
// [system.Runtime] that sees all devices and addresses its own: it compiles for all, copies to and
// from its own, and launches with its own arguments. A launch of a program that spans processes
// waits until each of them has launched it, and runs once, with everybody's arguments. The tensors,
// the compiler and the collectives are the real ones.
//
// # What is not
//
// There is one address space and one client. A launch blocks until the others arrive, where a TPU's
// returns at once and its results wait. Equal programs are compiled once. There is no network that
// is slow or loses anything; a process that dies is noticed at once.
//
// # Faults
//
// Where a slice would hang, a wait here ends at the deadline of its context, or after
// [Options.Patience], with an error that names the processes: [*MissingError] for those that did
// not come, [*ProgramError] for those that launch something else, [*LostError] for one that ended.
// After the first such error the cluster is broken, as a slice is, and every further launch over
// processes repeats it.
package simhost
