// Package rows builds the graph of scatters, which combine rows of a tensor with updates, and of the
// padding of rows.
//
// In a scatter x has shape [n, ...], indices are integers of shape [k] and updates have shape
// [k, ...] with the other dimensions of x. An index that names no row is ignored. Add, Sub, Min and
// Max have gradients.
package rows
