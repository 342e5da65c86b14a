// Package moe is a layer of experts: each token goes to the few experts that a router chooses for
// it, and the experts are spread over the logical devices. Tokens go to their experts and back by
// all-to-all.
//
//	// x is [tokens, width], split over "expert"; the weights are [experts, ...], split likewise.
//	out := moe.Layer(x, gate, []*graph.Node{up, down}, func(x *graph.Node, w []*graph.Node) *graph.Node {
//		h := activation.Relu(graph.Einsum("esd,edh->esh", x, w[0]))
//		return graph.Einsum("esh,ehd->esd", h, w[1])
//	}, moe.Options{Axis: "expert", Top: 2, Capacity: 1.25, Groups: 8})
//	loss = graph.Add(loss, graph.MulScalar(out.Balance, 0.01))
//
// # Capacity
//
// The tokens are taken in groups, one after another. In each group an expert has room for Capacity
// * Top * tokens / experts choices, rounded up. First choices come before second ones, and earlier
// tokens before later ones. A choice for which there is no room is dropped: the token then gets
// nothing from that expert. Result.Dropped is the part of the choices that were dropped; look at it.
//
// What is dropped depends on the groups and not on the devices, so that the same Groups give the
// same result on any number of devices that divides them.
//
// # Cost
//
// A device sends (n-1)/n of Capacity * Top copies of its tokens to the experts, and the results
// back, and the same in the backward pass. The mask by which tokens are put in their places has
// tokens * experts * room elements: take more groups where it is too large.
package moe
