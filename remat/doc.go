// Package remat computes values of a step's forward pass again in its backward pass instead of
// keeping them: rematerialisation, also known as gradient checkpointing. A step then needs less
// memory and more time.
//
//	y := remat.Block(remat.Products(), x, func(x *graph.Node) *graph.Node {
//		h := activation.Gelu(layers.Dense(scope.In("up"), x, true, 4*width))
//		return layers.Dense(scope.In("down"), h, true, width)
//	})
//
// # Policies
//
// A [Policy] says what of a block is kept for its backward pass:
//
//   - [Everything]: all that the backward pass reads, as without a block.
//   - [Products]: the results of dot products and of convolutions. Elementwise ops, normalisations
//     and softmaxes run again, which costs little time where products dominate.
//   - [Names]: the tensors that [Name] gave one of some names.
//   - [Nothing]: nothing but what enters the block. The block's forward pass runs again, which
//     costs about a third of the step's time where the whole model is made of blocks.
//
// What enters a block is always kept. So are random numbers: the same are drawn again, because
// their state enters the block. The same policies are an option of package loop, which keeps stacks
// of what its layers keep.
//
// # What may stand in a block
//
// Annotations and regions of package logical, collectives, variables, and other blocks and loops. A
// logical.On region is kept or computed again as a whole: [Everything] keeps what its backward pass
// reads, on the region's device; other policies do not see the products and names in it. A
// collective that is computed again is communicated again; keep it by its name, or by [Products]
// what comes after it, where that costs too much. What a block writes to variables is written once.
package remat
