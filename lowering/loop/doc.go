// Package loop runs the layers of a model as a loop in the compiled program instead of unrolling
// them. The size of the program and its compile time do not depend on the number of layers.
//
//	x = loop.Layers(rc.Scope("layers"), 24, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
//		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
//		h = activation.Gelu(layers.Dense(scope.In("up"), h, true, 4*width))
//		return graph.Add(x, layers.Dense(scope.In("down"), h, true, width))
//	}, loop.Options{Keep: remat.Products()})
//
// Use it for layers that perform the same computation with different variables. Layers with
// different shapes or computations cannot be in one loop.
//
// # Variables
//
// The block is ordinary GoMLX code: it creates variables under the scope that it receives. The
// store contains one stacked variable for all layers. For example, if a layer has weights of shape
// [8, 32] at /layers/up/dense/weights, the store of 24 layers has a variable of shape [24, 8, 32]
// at this path. The initial value of each layer is the result of its initializer for shape [8, 32];
// random initial values differ between layers.
//
// Optimizers, checkpoints and the rules of strategy.Options.Variables use the stacked variable,
// which has an additional dimension. A stack cannot be split along the layers:
//
//	logical.Match(`layers/up/.*weights`, logical.SplitInto(1, 1, 2)) // [24, 8, 32] into 2 x [24, 8, 16]
//
// # Several arguments and results
//
// [Run] is the general form. A layer can pass several tensors to the next layer, read tensors that
// are the same for all layers, read its slice of a stack, return results that are stacked (for
// example keys and values), and add to sums (for example an auxiliary loss).
//
// # Memory
//
// The values that the backward pass needs from the forward pass are stacked, so n layers keep n
// times the values of one layer. Options.Keep selects the values that are kept; the others are
// recomputed. See package remat for the policies.
//
// # Implementation
//
// The block is traced several times, until all its variables are known. The program contains one
// stablehlo.while for the forward pass, which slices the stacks, and one for the backward pass,
// which visits the layers in reverse order and stacks the gradients. Loops can be nested to any
// depth. Each level of nesting approximately doubles the number of traces of the innermost block.
package loop
