// Package strategytest opens strategies for tests, on the devices of package plugintest, and reads
// their values. The strategies are closed when the test ends, and an error fails the test.
//
// [New] opens a strategy on new CPU devices, [On] on an open system, and [OnProcesses] on each of
// several simulated processes. [Ahead] opens a strategy that compiles for a slice. The package also
// has small models and batches that tests share. For example, [AnnotatedStep] trains a network
// whose tensors are split over the logical devices, assigned to one logical device, and exchanged
// between all of them.
package strategytest
