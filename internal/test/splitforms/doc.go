// Package splitforms builds random programs of windowed and whole-axis operations on tensors with a
// split dimension. A test runs a program on one device and on several devices and compares the
// results and the gradients.
//
// The elements of all arguments are small integers, so that sums are exact in float32 in any order.
package splitforms
