// Package savetest contains tests of checkpoints in an object store, with several hosts, the CPU
// plugin, Google's client and an HTTP server behind a proxy that injects faults.
//
// `make test-saves` runs 200 saves with faults; the normal tests of the module run a sample.
package savetest
