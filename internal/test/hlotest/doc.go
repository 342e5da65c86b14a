// Package hlotest decodes optimized programs for tests that inspect the compiler's output, such as
// the number of matrix products, the dtypes and sizes of collectives, and the instructions that only
// some devices run.
//
//	for _, op := range hlotest.Ops(t, compiled.Program) {
//		if op.Code == "all-reduce" { ... }
//	}
//
// [Ops] decodes the HloModuleProto of an executable. It fails the test if the message is invalid.
package hlotest
