// Package ragged rewrites a program for padded tensors so that padding does not affect its results.
//
// A compiled program has static shapes, and the last batch of a dataset is often smaller: a replica
// may receive 3 real rows in a batch of 4. A value that is computed from one row alone may be
// computed from padding too. An op that combines rows must ignore the padding, and a mean must
// divide by 3.
//
// # Finding the dependencies on a size
//
// A graph contains only numbers and does not record that a 4 is the batch size. The step is
// therefore traced for several sizes of each padded dimension, and [Compare] compares the programs.
// A dimension that differs is padded, a constant that differs is a function of the size, and
// everything else is independent of the size: a 4 of the user's code stays 4.
//
// # Rewriting
//
// [Plan.Apply] adds the real sizes, which are operands, to the program for the padded shape. It
// preserves one invariant: the real part of each value (the leading elements of each padded
// dimension) is the value that the program for the real size computes. Elementwise ops preserve the
// invariant without changes. For a reduction, contraction, scatter or window over a padded
// dimension, a select replaces the padding of the operands by the neutral element, so that NaN in
// the padding has no effect. Constants that depend on a size become expressions of the real size.
// An op that cannot preserve the invariant, such as a reverse of a padded dimension, is an
// [*Error]. Gradients are ops of the program and require no further rules.
package ragged
