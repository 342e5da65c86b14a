// Package gomlxexamples runs programs of GoMLX's examples, unchanged, on this module's backend, and
// compares what they learn on one device and on several.
//
// The programs are built from the module cache, by package gomlxoverlay, which adds to GoMLX an
// import of the backend. For the comparison it also writes each step's loss to a file, fixes the
// seeds that programs take from the clock or the system, and lets files of made-up data pass the
// programs' checksums (testdata/overlay). The data are written by makedata.
//
//	make test-gomlx-examples
//
// builds and runs them, and writes the table docs/gomlx-examples.md.
package gomlxexamples
