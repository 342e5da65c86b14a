// Package recomputed knows the nodes that GoMLX's checkpointing computes again in the backward pass,
// which GoMLX keeps to itself. It computes a node again by the node's op, and knows no op of this
// module: of one it would make an identity.
package recomputed
