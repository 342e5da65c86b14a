// Package probe asks the compiler of a slice for a program's figures, for a search of plans
// (package plan): in seconds of a program that is split and scheduled ([Compiler.Probe]), or
// in minutes of the finished one ([Compiler.Compile]). What it was told it keeps, if it has a
// folder, so that a search that was interrupted goes on where it was.
package probe
