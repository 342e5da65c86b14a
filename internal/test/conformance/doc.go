// Package conformance compares this module with recorded cases of TensorFlow's distribution API. A
// case contains an input, as a value or a description in words, and TensorFlow's result.
//
//	go test -v ./internal/test/conformance
//	go test ./internal/test/conformance -v -args -goldens DIR
//
// Each case is a subtest with the name file/section/name/strategy. The tests print a summary for each
// file. A case passes, fails, is not applicable, or is unmapped. The reasons for cases that are not
// applicable are listed in notapplicable_test.go. A case is unmapped if no runner supports it. Unmapped
// cases count as failures.
//
// The tests read every file NAME.json in the folder. The form of a case is determined by its fields. A
// file may contain cases of several forms and may refer to topologies in other files. Unknown fields,
// inputs and expressions are failures.
//
// # Inputs
//
// A case specifies the values of the replicas in one of these forms: a list, a list of nested
// structures, a class with values ({"PerReplica": [...]}), or a Python expression that each replica
// computes from its ID, such as "id+1", "[id, 2.]" or "tf.constant(3.) made in each replica".
//
// A case may use a name of TensorFlow's API as its section or in its title. names_test.go lists the
// names of the reference pages.
//
// The grammar of titles, inputs and outputs is in reading_test.go and in the runners of the sections.
// A strategy may be a list, with an output for each strategy. A title may contain parameters ("global
// batch 5 over 4 replicas as 2,2,1,0"), a sequence of steps ("scope() then run()") and contexts ("in the
// scope of another strategy"). The name of an output may describe its value ("SUM_axis0",
// "read_value"). If a case omits an input value, the runner derives the value from the output. If
// the title of a case does not contain the context of a call, the recorded error message determines
// the context.
//
// A case fails if the runner of its section does not use all inputs, or does not support an output,
// the title or the strategy.
//
// # Sources of cases
//
// The programs in generate run TensorFlow and write cases to testdata/goldens in the root of the
// module. testdata/derived contains cases that cannot be recorded. They were derived by hand from
// TensorFlow's documentation. Package inputcases runs the cases of input distribution, and
// package valuecases the cases of topologies, device assignments and shardings. Neither of them
// requires a plugin, and the tests of the packages under test also run these cases. The tests of this
// package run all other cases on devices.
//
// # Execution
//
// The cases run on the devices of the CPU plugin with the number of replicas of the case, once with
// one logical device per replica and once with two. Cases of mirrored-N use the semantics of
// MirroredStrategy. Cases of tpu-host-N and of traced graphs use the semantics of TPUStrategy.
//
// # Comparison
//
// Numbers are compared with the rounding error of float32, or of half precision if the case has such a
// dtype. Errors are compared by kind. TypeError and AttributeError are the same kind, because both
// report a value of a wrong type. Error texts are not compared. Shardings over meshes and with
// subgroups are compared in XLA's normalized form. A tensor that TensorFlow keeps on one device must be
// equal on all replicas in this module. A value that TensorFlow calls Mirrored although its
// components differ is a PerReplica in this module.
package conformance
