// Package inputcases runs recorded cases of TensorFlow's input distribution on package input. The
// cases cover splitting, rebatching, datasets for each host, and auto-sharding. The package does not
// require a plugin. The tests of package input and the conformance tests use it.
package inputcases
