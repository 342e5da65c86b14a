// Package logical places tensors on the logical devices of a replica.
//
// A replica of a step runs on P logical devices (TPU cores). Three annotations,
// those of TensorFlow's TPUStrategy, say which of them holds a tensor:
//
//   - [Split] cuts a tensor's dimensions into parts, one part a logical device.
//   - [Replicate] keeps a whole copy on every logical device.
//   - [Assign] makes a tensor on one logical device: its op runs there alone.
//
// A fourth, [On], runs a whole region of the step on one logical device while
// the others skip it.
//
// # Two forms
//
// On a node inside a step, call the functions: they return a node with the same
// value and the same gradient, placed as asked. On the step's arguments and
// variables, which exist before the step does, use the values: [SplitInto],
// [Replicated], [AssignTo] and, for many variables at once, [Rules].
//
// Of arguments and variables, which no op makes, only a split saves memory: one that is
// assigned to a logical device is stored whole on each, as one that is replicated.
//
// # Placement never changes a result
//
// An annotation moves data, it does not compute. Dropping every annotation of a
// step gives the same numbers up to the rounding of a sum taken in another order.
//
// # Order of the parts
//
// Split(x, p0, p1, ...) gives logical device i the part whose coordinates are
// those of i in a row-major grid of shape [p0, p1, ...], as in TensorFlow: with
// Split(x, 2, 2), device 1 holds the upper right quarter of a matrix.
//
// # Errors
//
// The value forms return errors. The node functions, like every GoMLX graph
// function, panic with the error, which is a [*Error]; package strategy returns
// it from the call that traced the step.
package logical
