// Package docs has no code of its own. Its tests hold the pages of this directory, and the README,
// to the code: the commands run, the blocks of Go compile or are pieces of files that do, an error
// that errors.md shows has the text that the library gives, a Go name that a page or a comment of a Go
// file uses exists, every name of TensorFlow's contract that the tensorflow pages translate has its
// counterpart and a test, which testdata/from-tensorflow.txt names, and no line is too wide.
//
// Run the tests with -update to write the texts in the pages anew:
//
//	go test ./docs -update
package docs
