// Package conformance runs recorded cases of TensorFlow's distribution stack on
// this module: each is an input, by value or by name, and what TensorFlow answered.
//
//	go test -v ./internal/conformance
//	go test ./internal/conformance -v -args -goldens DIR
//
// There is one subtest a case, called file/section/name/strategy, and a summary of
// each file. A case passes, fails, is not applicable (the reasons are in one list,
// notapplicable_test.go) or is unmapped: nothing here knows how to run it, which
// counts as a failure.
//
// # How cases run
//
// Numbers are computed on the devices, by the CPU plugin, with as many replicas as
// the case has, once with one logical device a replica and once with two. Cases of
// mirrored-N run with MirroredStrategy's semantics, those of tpu-host-N and of the
// traced graphs with TPUStrategy's.
//
// # How answers compare
//
// Values compare as values, with the rounding of float32, or of half precision where a
// case has such a dtype; errors by their kind,
// TypeError and AttributeError being one: both say that a value is of the wrong
// sort. Texts of errors are each project's own. A tensor that TensorFlow leaves on
// one device is a value on all replicas here and must be equal on them; what it
// calls Mirrored although its components differ is PerReplica here.
package conformance
