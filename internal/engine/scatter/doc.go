// Package scatter builds the graph nodes of scatter operations, which update rows of a tensor.
//
// A scatter has three operands. x has shape [n, ...]. indices has an integer dtype and shape [k].
// updates has shape [k, ...] with the other dimensions of x. An index outside of the n rows is
// ignored. [Add], [Sub], [Min] and [Max] have gradients.
package scatter
