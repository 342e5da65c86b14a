// Package docs contains only tests. They compare the README and the pages in the folder docs with the
// code: commands run, blocks of Go code compile or match a file of the module, the errors in errors.md
// have the text that the module returns, and the Go names on pages and in comments exist. Every name of
// TensorFlow's contract on the tensorflow pages has a counterpart and a test
// (docs/testdata/from-tensorflow.txt). No line of a page is too wide.
//
// With -update, the tests write the generated texts of the pages:
//
//	go test ./internal/test/docs -update
package docs
