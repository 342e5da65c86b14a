// Package loop runs the layers of a model as a loop of the program, instead of one after another:
// the text of 48 layers is that of 2 layers, and so is the time to compile it.
//
//	x = loop.Layers(rc.Scope("layers"), 24, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
//		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
//		h = activation.Gelu(layers.Dense(scope.In("up"), h, true, 4*width))
//		return graph.Add(x, layers.Dense(scope.In("down"), h, true, width))
//	}, loop.Options{Keep: remat.Products()})
//
// Use it where a model has several layers that do the same with variables of their own. Layers that
// differ, in their shapes or in what they do, stay as they are, one after another.
//
// # Variables
//
// The block is GoMLX code like any other: its layers make variables under the scope that it is
// given. The store has one variable for all layers, stacked: where a layer has weights [8, 32] at
// /layers/up/dense/weights, the store of 24 layers has [24, 8, 32] at that path. Each layer's first
// value is what its initializer gives for [8, 32], and random ones differ from layer to layer.
//
// All that goes by path and shape sees the stack: optimizers, checkpoints, and the rules of
// strategy.Options.Variables, which have a dimension more. A stack is not split along the layers:
//
//	logical.Match(`layers/up/.*weights`, logical.SplitInto(1, 1, 2)) // [24, 8, 32] into 2 x [24, 8, 16]
//
// # More than one tensor
//
// [Run] is the general form. A layer can hand on several tensors, read tensors that are the same for
// all layers, read its slice of a stack, return results that are stacked (keys and values), and add
// to sums (an auxiliary loss).
//
// # Memory
//
// The backward pass needs values of the forward pass. The loop stacks them: n layers keep n times
// what one keeps. Options.Keep says what is kept and what is computed again; package remat has the
// policies.
//
// # How it works
//
// The block is traced a few times, until all its variables are known. The program has one
// stablehlo.while for the forward pass, which cuts each layer's slices, and one for the backward
// pass, which goes through the layers in reverse and stacks the gradients. Loops nest to any depth; each loop around
// another about doubles how often the innermost block is traced.
package loop
