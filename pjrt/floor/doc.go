// Package floor measures what a step loop costs over the least it can cost: the same program, run
// by [pjrt.LoadedExecutable.Repeat] in C and by a loop in Go, in turn, in one process.
package floor
