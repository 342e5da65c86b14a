// Package mesh is the machine of R x P devices: what they hold and do, whoever asks.
//
// A [Layout] is a value: it says which part of a tensor each device holds. A [Machine] is what programs
// are compiled for, each once however many ask ([Machine.Build]). [Devices] are a machine that is at
// hand: tensors go to them ([Devices.Put], [Devices.Fill]) and come from them ([Devices.Get],
// [Devices.CopyOut]) in parts, programs are launched on them in one order ([Devices].Launch), and the
// processes of a job exchange messages through them ([Devices.Gather]). A slice that is only described
// is a Machine and no Devices ([Describe]): there is nothing to launch on.
//
// The package knows no variables, no contexts and no graphs. Package strategy and the global view
// stand on it.
package mesh
