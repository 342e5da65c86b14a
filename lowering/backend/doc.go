// Package backend runs GoMLX graphs on one device of a PJRT client.
//
// # What it is
//
// A compute.Backend made of package lowering, which writes the program, and package pjrt, which
// compiles and runs it. GoMLX's own graph.Exec, train.Trainer and train.Loop work on it unmodified:
//
//	b, err := backend.New(nil, backend.Options{}) // one device of the CPU plugin, found where it is installed
//	defer b.Finalize()
//	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Add(x, x) })
//
// A client of one's own says which devices it runs on: backend.New(client, backend.Options{}).
// NewFromConfig opens a plugin by a text such as "tpu,precision=highest".
//
// Register offers it under a name, for GoMLX code that asks for "name:cpu" in the GOMLX_BACKEND
// variable.
//
// # Ownership
//
// A Buffer and an Executable hold device memory until Finalize; the garbage collector frees what is
// forgotten, later. Finalize of the Backend frees all that is left, and makes every use of it an
// error. The client stays the caller's, except for backends made by Register, by NewFromConfig or
// without a client, which own theirs.
//
// # Waiting
//
// compute's interfaces carry no context. Execute returns once the work is enqueued, and ToFlatData
// waits for the value for as long as it takes.
//
// # Limits
//
// Many devices in one program are the business of package strategy; this backend runs what GoMLX
// itself can distribute, and is mostly for one device. Shapes are static.
package backend
