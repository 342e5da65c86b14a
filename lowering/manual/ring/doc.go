// Package ring implements ring attention: attention over a sequence that is split over the logical
// devices (sequence parallelism). It supports sequences whose scores or activations do not fit on
// one device.
//
//	// q, k and v are [batch, length, heads, dim], split over "sequence" on the length.
//	y := ring.Attention("sequence", q, k, v, ring.Options{Causal: true})
//
// Each device has the queries, keys and values of one shard of the sequence. The keys and values
// are passed around a ring of devices (manual.Shift). Each device combines the received keys and
// values with its queries using the online softmax, so that no device stores all scores. Results
// and gradients equal those of unsharded attention up to rounding.
//
// # Cost
//
// With n devices, a sequence of length L, and b bytes for the keys and values of one position, each
// device sends (n-1)/n * L * b bytes in the forward pass and twice as many in the backward pass.
// The backward pass recomputes the scores but keeps the received keys and values, so the memory of
// a device grows with L and not with L*L/n.
//
// The shards are contiguous. With a causal mask, the scores of later keys are computed and then
// masked, so the mask does not reduce the work.
//
// The region is manual only over the axis of the sequence. The partitioner splits the batch and the
// heads over the other axes according to their annotations.
package ring
