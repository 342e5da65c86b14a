// Package prochost runs the hosts of a simulated slice as operating-system processes on one computer.
// A test can kill, stop or disconnect these processes.
//
// # Usage
//
// One process runs a [Machine]: a server that opens all CPU devices and listens on a socket.
//
//	base, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	machine, err := prochost.Listen(base, "unix", "/tmp/x/machine", prochost.Options{})
//	defer machine.Close()
//
// Each host is a separate process. It receives its configuration, for example in an environment
// variable that [Host.Environ] writes and [FromEnviron] reads, and opens its devices through the
// socket:
//
//	host, here, err := prochost.FromEnviron(os.Getenv)
//	sys, err := system.Open(ctx, system.Options{Connect: host.Connect()})
//
// The host then runs the same code as on a real slice. Its runtime lists all devices and addresses
// the host's own devices. The machine compiles each program once for all hosts. To launch a program, a
// host sends the arguments of its devices to the machine. The machine waits until all hosts of the
// program have sent the launch, runs the program, and returns the results. The buffers of a host
// belong to a small CPU client in the host's process.
//
// The machine uses [simhost.Cluster], which implements the rules for launches.
//
// # Runs
//
// Hosts that start together share a run name, [Host.Run]. Hosts of different runs do not communicate,
// and runs may differ in their number of hosts. A supervisor that restarts all hosts after a failure
// uses a new run name, or the old name after all old hosts have exited. Compiled programs are reused
// by later runs.
//
// # Faults
//
// When a host exits, its socket closes and the other hosts receive a [*simhost.LostError] that names
// the host. A host that is stopped or hangs causes a [*simhost.MissingError] after
// [Options.Patience] or at the deadline of the context. If hosts launch different programs, they
// receive a [*simhost.ProgramError]. If the machine has exited or does not respond, every host receives
// a [*MachineError]. A peer must authenticate with the machine's secret, which [Machine.Host] includes
// in the configuration of a host. Before authentication, the machine reads only 64 bytes. It closes
// the connection of a peer that violates the protocol.
//
// # Limits of the simulation
//
// All hosts share the clock and the disks of one computer. A launch blocks until its results are
// available, but on a TPU it returns immediately. A launch costs some microseconds, plus the time to
// copy its arguments and results through a socket.
package prochost
