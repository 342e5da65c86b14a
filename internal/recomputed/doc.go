// Package recomputed reports which nodes GoMLX's checkpointing computes again in the backward pass.
// This is private information of GoMLX. It is needed because GoMLX cannot recompute the ops of this
// module: it would treat them as identity.
package recomputed
