// Package mesh is the machine of R x P devices: what they hold and do, whoever asks.
//
// A [Layout] is a value: it says which part of a tensor each device holds. A [Machine] compiles
// programs, each once however many ask ([Machine.Build]). Tensors go to its devices ([Machine.Put],
// [Machine.Fill]) and come from them ([Machine.Get], [Machine.CopyOut]) in parts, programs are launched
// on them in one order ([Machine].Launch), and the processes of a job exchange messages through them
// ([Machine.Gather]). The machine of a slice that is only described ([Describe]) compiles, and has no
// part of any tensor.
//
// The package knows no variables, no contexts and no graphs. Package strategy and the global view
// stand on it.
package mesh
