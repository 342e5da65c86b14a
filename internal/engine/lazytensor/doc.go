// Package lazytensor creates GoMLX tensors whose elements are computed or read when they are used,
// such as the initial value of a variable on the devices, or a tensor in a file.
package lazytensor
