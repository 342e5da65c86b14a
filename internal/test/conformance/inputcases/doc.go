// Package inputcases runs recorded cases of TensorFlow's input distribution on package input:
// splitting and rebatching, functions for each host, auto-sharding. It needs no plugin, so that
// both the tests of package input and the whole conformance run use it.
package inputcases
