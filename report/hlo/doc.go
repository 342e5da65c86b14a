// Package hlo reads the programs of a step: the optimized program that XLA compiles (HLO), and the
// StableHLO text of the step as written.
//
// [Parse] returns an optimized program as plain values. Operands and called computations are
// pointers. The number of iterations of loops, the FLOPs, the memory traffic and the origins in the
// user's Go code are already computed. Package report/cost predicts times from these values.
// [ModelFLOPs] counts the operations of the matrix products and convolutions in a StableHLO text.
package hlo
