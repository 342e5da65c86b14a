// Package system opens the devices that a strategy runs on: a PJRT plugin, a client and the
// topology of its devices, as one object with one Close.
//
//	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	if err != nil { ... }
//	defer sys.Close()
//
// The zero Options mean the TPU of a Cloud TPU VM: Open looks for libtpu (see
// [github.com/tpustrategy/tpustrategy/pjrt.Find]) and reads the topology from the devices'
// coordinates. With CPUDevices set, the XLA CPU plugin makes that many devices, and the topology is
// a given or a default grid, since CPU devices have none.
//
// Which plugin is used is never a guess: a plugin that is named and missing is an error, not a
// reason to take another.
//
// # Start-up of many processes
//
// Every process of a slice runs the same program. Given a resolver, [Open] finds out which
// processes there are, holds the environment against the metadata, and counts the devices against
// the cluster:
//
//	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
//	defer cancel()
//	md := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{})
//	sys, err := system.Open(ctx, system.Options{
//		Resolver: clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: md}),
//		Metadata: md,
//		Logger:   slog.Default(),
//	})
//
// A TPU's client waits until all processes are up, and the plugin cannot be interrupted. Open ends
// at ctx's deadline all the same, with a [*StartError] that names the step and the processes that
// do not answer. If another process holds the TPU, the error is a [*LockedError], which names that
// process. [System.Shutdown] closes within a deadline.
//
// On a machine with a TPU, Open warns of what makes its start slow, such as transparent huge pages
// that are off, with the command that fixes it, and has libtpu use the launch barrier that JAX uses
// ([Options].KeepEnvironment leaves that out).
//
// [New] makes a system over a [Runtime] that is not a plugin's, or not all of one: that is how
// several processes are simulated on one CPU client.
//
// # Slices that are not at hand
//
// [Describe] asks libtpu for the devices of a slice by name, such as "v5p:4x4x4", with no TPU
// anywhere. The [Slice] compiles programs for it; a strategy over a Slice traces and compiles steps
// that only such a slice can run. On a machine without a TPU Describe sets the environment that
// libtpu wants there.
//
// # Ownership
//
// A System owns its client. Close strategies before it. While strategies are open, Close fails and
// counts what is open, rather than pull devices away from buffers.
package system
