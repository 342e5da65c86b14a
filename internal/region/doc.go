// Package region traces regions: parts of a step that are lowered separately. A region is the body
// of a loop over layers, a block that the backward pass recomputes, a computation over a device's
// own shards, or, within a loop or a block, ops that run on only one logical device.
//
// A region is traced once, inline, between two calls of its [Target]. A [Mapping] describes how an
// argument or a result inside the region corresponds to the value outside: it is unchanged, the
// state of a loop, a slice of a stack, or a shard. [Trace] defines the gradient of the region. The
// backward pass is a second region, whose arguments are the adjoints of the results and whose
// results are the gradients of the arguments. A value has the same mapping in both passes. For
// example, the gradients of a sliced argument are stacked. The backward pass of a loop or a block
// can be differentiated too (see second.go).
//
// The values of the forward pass that the backward pass reads are not arguments. The target finds
// them when it assembles the program, and keeps or recomputes them, depending on the [Kind].
//
// The packages that offer regions to users call this package. It does not depend on a lowered
// program: a target, such as the trace of package lowering/spmd, lowers the regions.
package region
