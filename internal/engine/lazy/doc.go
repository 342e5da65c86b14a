// Package lazy creates GoMLX tensors whose elements are computed or read on first use, such as the
// initial value of a variable on the devices, or a tensor in a file.
package lazy
