// Package prochost runs the hosts of a slice as operating-system processes on one machine, so that
// they can be killed, stopped and cut off for real.
//
// # What there is
//
// One process, the machine, opens all CPU devices and serves them on a socket:
//
//	base, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	machine, err := prochost.Listen(base, "unix", "/tmp/x/machine", prochost.Options{})
//	defer machine.Close()
//
// Each host is a process of its own. It is told who it is, as by a variable of its environment that
// [Host.Environ] writes and [FromEnviron] reads, and opens its devices through the socket:
//
//	host, here, err := prochost.FromEnviron(os.Getenv)
//	sys, err := system.Open(ctx, system.Options{Connect: host.Connect()})
//
// From there on a host does what it does on a slice. Its runtime sees all devices and addresses its
// own. A program is compiled by the machine, once for all hosts. A launch brings the arguments of
// the host's devices to the machine, waits until all hosts of the program have made it, runs there,
// and brings the results back. Buffers are those of a small CPU client of the host's own.
//
// The machine is a server over [simhost.Cluster], which has the rules of a launch.
//
// # Lives
//
// The hosts that start together have a name for it, [Host.Run]. Hosts of another run are strangers
// to them, and may be another number. A supervisor that starts all hosts again after one has died
// gives them another name, or the same one once all of the old hosts are gone. Programs stay
// compiled from one run to the next.
//
// # Faults
//
// A host that ends is noticed by its socket, and the others get a [*simhost.LostError] that names
// it. One that is stopped or hangs is named by a [*simhost.MissingError] after [Options.Patience],
// or at the deadline of a context. Hosts that launch different programs get a
// [*simhost.ProgramError]. A machine that is gone, or stopped, is a [*MachineError] on each host.
// A peer that does not know the machine's secret is not let in, and nothing is read of it but 64
// bytes; [Machine.Host] tells the hosts the secret. A peer that sends anything else than a host does
// is cut off.
//
// # What is not simulated
//
// All hosts are on one computer and share its clock and its disks. A launch blocks until its
// results are there, where a TPU's returns at once. The cost of a launch is that of moving its
// arguments and results through a socket: some microseconds and the bytes, twice.
package prochost
