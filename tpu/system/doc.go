// Package system opens the devices that a strategy runs on: a PJRT plugin, a
// client and the topology of its devices, as one object with one Close.
//
//	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	if err != nil { ... }
//	defer sys.Close()
//
// The zero Options mean the TPU of a Cloud TPU VM: libtpu is looked for (see
// [tpustrategy/pjrt.Find]) and the topology is read from the devices'
// coordinates. With CPUDevices set, the XLA CPU plugin makes that many devices,
// and the topology is a given or a default grid, since CPU devices have none.
//
// Which plugin is used is never a guess: a plugin that is named and missing is an
// error, not a reason to take another.
//
// # Ownership
//
// A System owns its client. Close strategies before it; Close then fails, naming
// what is open, rather than pull devices away from buffers.
package system
