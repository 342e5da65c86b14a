// Package probe measures programs with the compiler of a slice, for a search of plans (package plan).
// [Compiler.Probe] partitions and schedules a program, which takes seconds. [Compiler.Compile]
// compiles it completely, which takes minutes. Results are cached in a folder, so that an interrupted
// search can continue.
package probe
