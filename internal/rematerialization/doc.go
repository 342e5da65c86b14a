// Package rematerialization detects the nodes that GoMLX recomputes in the backward pass, by reading a
// private field of graph.Node. GoMLX cannot recompute the operations that this module adds: it would
// treat them as the identity.
package rematerialization
