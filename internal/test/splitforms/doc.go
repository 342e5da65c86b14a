// Package splitforms generates random programs of windowed and whole-axis operations on tensors that
// are split over devices. A test runs a program on one device and on several devices and compares
// the results and the gradients.
//
// The elements of all arguments are small integers. Sums are therefore exact in float32 in any order.
package splitforms
