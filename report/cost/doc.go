// Package cost predicts the time and the memory of a compiled program on a slice of TPUs.
//
// [Predict] and [Simulate] run a program of package report/hlo on one core in simulation: matrix
// products have the cycles that the compiler estimates for them, other operations the time of their
// memory traffic, and collectives the time of their bytes on the links of the slice, minus the part
// that the schedule hides. Arrays occupy memory from the operation that computes them to the last
// operation that reads them. [NewTorus] distributes the traffic of collectives over the links.
//
// Each [Constant] has a basis: published, from the compiler, fitted to a published measurement of a
// single operation, or assumed. docs/predicted-time.md compares predictions with measurements.
package cost
