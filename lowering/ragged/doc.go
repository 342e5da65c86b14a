// Package ragged makes a program for padded tensors compute what it would compute without
// the padding.
//
// A compiled program has one shape, and data seldom ends with a full batch: a replica of 3
// rows receives 4, the last of which is nothing. What is computed from a row alone may be
// computed from padding too; what combines rows must leave it out, and a mean must divide
// by 3.
//
// # Finding what depends on a size
//
// A graph is built for numbers, and nothing in it says that a 4 is the batch. So the step is
// traced for several sizes of each padded dimension, and [Compare] walks the programs side by
// side. A dimension that differs is padded, a constant that differs is a function of the size,
// and all else is independent of it: a 4 that the step's author wrote stays 4.
//
// # Rewriting
//
// [Plan.Apply] writes the real sizes, operands of the program, into the program for the
// padded shape. It keeps one invariant: of each value the real part (along each padded
// dimension the leading elements) is what the program for the real size computes. Elementwise
// ops keep it by themselves. Reductions, contractions, scatters and windows over a padded
// dimension get operands whose padding is the element that changes nothing, by a select, so
// that NaN there cannot leak. Constants that depend on a size become expressions of the real
// one. An op that cannot keep the invariant, such as a reverse along a padded dimension, is an
// [*Error]. As gradients are ops of the program, they need no rules of their own.
package ragged
