// Package region traces parts of a step that the lowering writes apart from the rest: the body of a
// loop over layers, a block that the backward pass computes again, a computation over a device's
// own shards, and in a loop or a block what one logical device runs alone.
//
// A region is traced once, in place, between two calls of its [Target]. What goes in and what comes
// out crosses its border, and a [Crossing] says how: as it is, as a loop's state, as a slice of a
// stack, as a shard. [Trace] gives the region a gradient of its own: the backward pass of the
// region is a second region, whose arguments are the adjoints of the results and whose results are
// the gradients of the arguments. A value crosses in the backward pass as it does in the forward
// pass: what came in as a slice of a stack has a stack of gradients.
// The backward pass of a loop or a block can be differentiated too: see second.go.
//
// What the backward pass reads of the forward pass is not said here. The target finds it when it
// assembles the program, and keeps it or computes it again as the [Kind] says.
//
// The package is for the rooms that have a region to offer. It knows no program: a target, such as
// the trace of package lowering/spmd, knows the kinds and writes them.
package region
