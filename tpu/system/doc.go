// Package system opens the devices that a strategy runs on. A [System] combines a PJRT plugin, a
// client and the topology of its devices:
//
//	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	if err != nil { ... }
//	defer sys.Close()
//
// With the zero Options, [Open] opens the TPU of a Cloud TPU VM: it searches for libtpu (see
// [github.com/tpustrategy/tpustrategy/pjrt.FindPlugin]) and computes the topology from the
// coordinates of the devices. With CPUDevices, it opens the XLA CPU plugin with this number of
// devices. CPU devices have no coordinates; their topology is Options.MeshShape or a default grid.
//
// If Options.Plugin is set but the file does not exist, Open returns an error. It never falls back
// to another plugin.
//
// # Starting several processes
//
// Every process of a slice runs the same program. With a resolver, [Open] determines the processes
// of the cluster, compares the environment with the metadata server, and compares the devices with
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
// The client of a TPU waits until all processes have started, and this wait cannot be interrupted.
// Nevertheless Open returns at the deadline of ctx, with a [*StartError] that contains the step and
// the processes that do not respond. If another process is using the TPU, the error is a
// [*LockedError] with that process. [System.Shutdown] closes the system within a deadline.
//
// On a host with a TPU, Open logs a warning for settings that slow down the start, such as disabled
// transparent huge pages, together with the command that changes the setting. It also enables the
// launch barrier in LIBTPU_INIT_ARGS, as JAX does, unless [Options].KeepEnvironment is set.
//
// [New] returns a system for another [Runtime]. It is used to simulate several processes with one
// CPU client.
//
// # Describing a slice without hardware
//
// [Describe] returns the devices of a named slice such as "v5p:4x4x4". It uses libtpu but needs no
// TPU. The resulting [Slice] compiles programs for these devices, and a strategy can trace and compile
// steps for it. On a host without a TPU, Describe sets the environment variables that libtpu requires.
//
// # Closing
//
// A System owns its client. Close all strategies before the System; otherwise Close returns an
// error with the number of open objects.
package system
