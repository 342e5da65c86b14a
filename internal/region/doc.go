// Package region traces parts of a step that are lowered separately: the body of a loop over layers,
// a block that the backward pass recomputes, a computation over a device's own shards, and, in a
// loop or a block, ops that one logical device runs alone.
//
// A region is traced once, inline, between two calls of its [Target]. A [Mapping] describes how an
// argument or a result crosses the region's border: unchanged, as a loop's state, as a slice of a
// stack, or as a shard. [Trace] defines the gradient of the region: the backward pass is a second
// region, whose arguments are the adjoints of the results and whose results are the gradients of the
// arguments. A value has the same crossing in both passes: an argument that is a slice of a stack has
// a stack of gradients. The backward pass of a loop or a block can be differentiated too: see
// second.go.
//
// The values of the forward pass that the backward pass reads are not arguments. The target finds
// them when it assembles the program, and keeps or recomputes them, depending on the [Kind].
//
// The packages that offer regions to users call this package. It does not depend on a lowered
// program: a target, such as the trace of package lowering/spmd, lowers the regions.
package region
