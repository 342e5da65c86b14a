// Package backend runs GoMLX graphs on one device of a PJRT client.
//
// # What it is
//
// A compute.Backend made of package lowering, which writes the program, and package pjrt, which compiles
// and runs it. GoMLX's own graph.Exec, train.Trainer and train.Loop work on it unmodified:
//
//	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{})
//	...
//	b, err := backend.New(client, backend.Options{})
//	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Add(x, x) })
//
// Register offers it under a name, for GoMLX code that asks for "name:cpu" in the GOMLX_BACKEND variable.
//
// # Ownership
//
// A Buffer and an Executable hold device memory until Finalize; the garbage collector frees what is
// forgotten, later. Finalize of the Backend frees all that is left, and makes every use of it an error.
// The client stays the caller's, except for backends made by Register, which own theirs.
//
// # Waiting
//
// compute's interfaces carry no context. Execute returns once the work is enqueued, and ToFlatData waits
// for the value for as long as it takes.
//
// # Limits
//
// Many devices in one program are the business of package strategy; this backend runs what GoMLX itself
// can distribute, and is mostly for one device. Shapes are static.
package backend
