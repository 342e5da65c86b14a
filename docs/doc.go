// Package docs contains the documentation pages and their tests. The tests check the pages and the README
// against the code:
//
//   - Commands run, and commands with shown output print that output.
//   - Go code compiles, or is part of a file that compiles.
//   - Error messages in errors.md equal the messages of the module.
//   - Go names in pages and comments exist.
//   - Each name of TensorFlow in the tables has a counterpart and a test, which testdata/from-tensorflow.txt
//     lists.
//   - Pages have fewer than 2,000 words, lines of at most 100 columns, and working links.
//
// Run the tests with -update to write the error messages into errors.md:
//
//	go test ./docs -update
package docs
