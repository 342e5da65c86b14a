// Package gomlxexamples runs unchanged GoMLX example programs on this module's backend and compares
// their losses on one device and on several.
//
// Package gomlxoverlay builds the programs from the module cache and adds an import of the backend to
// GoMLX. The overlay (testdata/overlay) also writes the loss of each step to a file, replaces random
// seeds by fixed ones, and disables the checksums of data files. Command makedata generates the data.
// To build and run the programs and to write the table docs/gomlx-examples.md, use:
//
//	make test-gomlx-examples
package gomlxexamples
