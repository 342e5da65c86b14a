// Package ring is attention over a sequence that is cut over the logical devices: sequence
// parallelism, for sequences whose scores or activations do not fit on one device.
//
//	// q, k and v are [batch, length, heads, dim], split over "sequence" on the length.
//	y := ring.Attention("sequence", q, k, v, ring.Options{Causal: true})
//
// Each device has the queries, the keys and the values of its part of the sequence. The keys and
// the values go round the ring of the devices (manual.Shift); each device combines what comes with
// its queries by the online softmax, so that no device ever has all the scores. The result equals
// that of attention over the whole sequence but for rounding, and so do the gradients.
//
// # Cost
//
// With n devices, a length of L and b bytes a row of keys and values, each device sends (n-1)/n * L
// * b bytes forward, and twice that backward. The backward pass computes the scores of each step
// again, and keeps the keys and the values that came: a device's memory grows with L, not with
// L*L/n.
//
// The parts of the sequence are contiguous. Under a causal mask the scores of later keys are
// computed and masked: the work is that of attention without a mask.
//
// The region is manual over the axis of the sequence alone. The partitioner divides batch and heads
// over the other axes, as their annotations say.
package ring
