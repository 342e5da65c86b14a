// Package strategytest opens strategies for tests, on the devices of package plugintest, and reads
// their values back. What it opens is closed when the test ends, and an error fails the test.
//
// [New] opens a strategy on CPU devices of its own, [On] one on a system that is open, [Ahead] one
// that compiles for a slice, and [OnProcesses] one for each of several simulated processes. Package
// strategytest also has small models and batches, so that tests mean the same by "a step":
// [AnnotatedStep] trains a network whose tensors are split over the logical devices, assigned to
// one, and exchanged between all.
package strategytest
