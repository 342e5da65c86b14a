// Package moe implements a mixture-of-experts layer. A router selects a few experts for each token.
// The experts are distributed over the logical devices, and all-to-all collectives send tokens to
// their experts and back.
//
//	// x is [tokens, width] and the weights are [experts, ...], both split over "expert".
//	out := moe.Layer(x, gate, []*graph.Node{up, down}, func(x *graph.Node, w []*graph.Node) *graph.Node {
//		h := activation.Relu(graph.Einsum("esd,edh->esh", x, w[0]))
//		return graph.Einsum("esh,ehd->esd", h, w[1])
//	}, moe.Options{Axis: "expert", TopK: 2, CapacityFactor: 1.25, Groups: 8})
//	loss = graph.Add(loss, graph.MulScalar(out.BalanceLoss, 0.01))
//
// # Capacity
//
// The tokens are divided into consecutive groups. In each group, an expert accepts at most
// CapacityFactor * TopK * tokens / experts assignments, rounded up. First choices have priority
// over second choices, and earlier tokens over later tokens. Other assignments are dropped: the
// token receives no result from that expert. Result.Dropped is the fraction of dropped assignments
// and should be monitored.
//
// Dropped assignments depend on the groups but not on the devices. With the same number of Groups,
// results are equal on any number of devices that divides it.
//
// # Cost
//
// With n devices, a device sends (n-1)/n of CapacityFactor * TopK copies of its tokens to the
// experts and receives as many results, in the forward pass and again in the backward pass. The
// dispatch mask has tokens * experts * capacity elements, where tokens and capacity are per group;
// increase the number of groups if it is too large.
package moe
