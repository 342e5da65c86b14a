// Package conformance runs recorded cases of TensorFlow's distribution stack on
// this module: each is an input, by value or by name, and what TensorFlow answered.
//
//	go test -v ./internal/test/conformance
//	go test ./internal/test/conformance -v -args -goldens DIR
//
// There is one subtest a case, called file/section/name/strategy, and a summary of
// each file. A case passes, fails, is not applicable (the reasons are in one list,
// notapplicable_test.go) or is unmapped: nothing here knows how to run it, which
// counts as a failure.
//
// Every file NAME.json of the directory is read, whatever its name: what a case has says which form
// it is of, and a file may hold cases of several forms and name topologies of the others. A field, an
// input or an expression that nothing here reads is a failure.
//
// # Inputs
//
// A case gives the values of the replicas as a list, as a nest of lists, by their class
// ({"PerReplica": [...]}), or as the expression of Python that each replica computes from its id:
// "id+1", "[id, 2.]", "tf.constant(3.) made in each replica".
//
// A case may call its section, or what its title is about, by the name of TensorFlow's API:
// names_test.go has each name of the reference pages.
//
// Titles, inputs and outputs are read by grammar, in reading_test.go and in the sections' runners: a
// strategy may be a list, with an output for each; a title may have parameters ("global batch 5 over 4
// replicas as 2,2,1,0"), steps in turn ("scope() then run()") and contexts ("in the scope of another
// strategy"); an output may be named by what it is ("SUM_axis0", "read_value"). Where a case does not
// give a value that it used, the runner works it back from the output. The message of a recorded error
// says in which context a call was made if the title does not.
//
// An input that the runner of a section did not read, and an output, a title or a strategy that it
// does not know, fail the case.
//
// # The rooms
//
// The programs in generate run TensorFlow and write cases to testdata/goldens at the module's root.
// testdata/derived has cases that were worked out by hand from the documented rules, where
// TensorFlow cannot be asked. Package inputcases runs the cases of input distribution and package
// valuecases those of topologies, device assignments and shardings; neither needs a plugin, and the
// tests of the packages that they are about run them too. The tests of this package run all the
// others, on devices.
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
// sort. Shardings over meshes and with subgroups compare as XLA normalises them.
// Texts of errors are each project's own. A tensor that TensorFlow leaves on
// one device is a value on all replicas here and must be equal on them; what it
// calls Mirrored although its components differ is PerReplica here.
package conformance
