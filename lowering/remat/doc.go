// Package remat recomputes values of the forward pass in the backward pass instead of storing them.
// This technique is called rematerialization or gradient checkpointing. It reduces the memory of a
// step but increases its time.
//
//	y := remat.Block(remat.Products(), x, func(x *graph.Node) *graph.Node {
//		h := activation.Gelu(layers.Dense(scope.In("up"), x, true, 4*width))
//		return layers.Dense(scope.In("down"), h, true, width)
//	})
//
// # Policies
//
// A [Policy] selects the values of a block that are kept for its backward pass:
//
//   - [Everything] keeps all values that the backward pass reads, as without a block.
//   - [Products] keeps the results of dot products and convolutions. Elementwise ops, normalizations
//     and softmaxes are recomputed, which takes little time if products dominate.
//   - [Names] keeps the tensors with the given names (see [Name]).
//   - [Nothing] keeps only the inputs of the block. The forward pass of the block is recomputed. This
//     increases the time of a step by about a third if the complete model consists of blocks.
//
// The inputs of a block are always kept. They include the state of the random number generator, so
// that recomputing draws the same random numbers. The layers of package loop use the same policies.
//
// # Contents of a block
//
// A block can contain annotations and regions of package logical, collectives, variables, and other
// blocks and loops. Writes to variables are not repeated.
//
// A logical.OnDevice region is kept or recomputed as a unit. [Everything] keeps the values that its
// backward pass reads, on the device of the region. Other policies cannot select products and names
// inside the region.
//
// A recomputed collective communicates again. To avoid this, name its result and keep it with
// [Names], or keep the products that use it with [Products].
package remat
