// Package savetest holds the tests of checkpoints in an object store: several hosts, the CPU plugin,
// Google's client and an HTTP server, with a proxy that injects faults between them.
//
// `make test-saves` does 200 saves under faults; the tests of the module do a sample.
package savetest
