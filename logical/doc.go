// Package logical places tensors on the logical devices of a replica.
//
// A replica of a step runs on P logical devices (TPU cores). The three annotations of TensorFlow's
// TPUStrategy say which logical device holds which part of a tensor:
//
//   - [Split] cuts a tensor into parts, one for each logical device
//     (experimental_split_to_logical_devices).
//   - [Replicate] keeps a whole copy on every logical device
//     (experimental_replicate_to_logical_devices).
//   - [Assign] makes a tensor on one logical device: the tensor's op runs on that device alone
//     (experimental_assign_to_logical_device).
//
// [On] runs a whole region of the step on one logical device, while the other logical devices skip
// the region.
//
// # Two forms
//
// Annotate a node inside a step with the functions: each returns a node with the same value and the
// same gradient, placed as asked. Annotate the step's arguments and variables, which exist before
// the step does, with the values: [SplitInto], [Replicated], [AssignTo] and, for many variables at
// once, [Rules].
//
// Only a split saves memory for arguments and variables, because no op makes them: an argument or a
// variable that is assigned or replicated is stored whole on every logical device.
//
// # Placement never changes a result
//
// An annotation moves data and computes nothing. Without its annotations a step gives the same
// numbers, up to the rounding of sums that are taken in another order.
//
// # Order of the parts
//
// Split(x, p0, p1, ...) gives logical device i the part whose coordinates are those of i in a
// row-major grid of shape [p0, p1, ...], as in TensorFlow: with Split(x, 2, 2), device 1 holds the
// upper right quarter of a matrix.
//
// # Errors
//
// Every error is an [*Error]. The values return it. The functions on nodes panic with it, as all
// GoMLX graph functions do; package strategy returns it from the call that traced the step.
package logical
