// Package ragged rewrites a program for padded tensors so that padding does not affect its results.
//
// A compiled program has static shapes, but the last batch of a dataset is often smaller: a replica
// may receive 3 rows and 1 row of padding in a batch of 4. Here 4 is the padded size and 3 is the
// real size. An op on single rows may compute padding too. An op that combines rows must ignore the
// padding, and a mean must divide by 3.
//
// # Finding the dependencies on a size
//
// A graph contains only numbers and does not record that a 4 is the batch size. The step is
// therefore traced for several sizes of each padded dimension, and [Compare] compares the programs.
// A dimension that differs is padded. A constant that differs is a function of the size. Everything
// else is independent of the size: a 4 in the user's code remains 4.
//
// # Rewriting
//
// [Plan.Apply] passes the real sizes to the program as operands and preserves one invariant:
// without its padding, each value equals the value that a program for the real size computes.
// Padding is always at the end of a dimension. Elementwise ops preserve the invariant. For an op
// that combines elements of a padded dimension, such as a reduction, contraction or scatter, Apply
// replaces the padding of its operands by the neutral element, so that even NaN has no effect. A
// constant that depends on a size is computed from the real size. An op that cannot preserve the
// invariant, such as a reverse of a padded dimension, is an [*Error]. Gradients need no further
// rules, because they consist of the same ops.
package ragged
