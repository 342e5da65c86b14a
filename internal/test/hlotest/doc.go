// Package hlotest reads the programs that a compiler optimized, for tests that count what became of
// a module: how many products it has, which collectives, of which dtype and size, and which
// instructions stand in a branch that some devices do not take.
//
//	for _, op := range hlotest.Ops(t, compiled.Program) {
//		if op.Code == "all-reduce" { ... }
//	}
//
// [Ops] decodes the HloModuleProto that a plugin gives for an executable. It fails the test where
// the message is malformed.
package hlotest
