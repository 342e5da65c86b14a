// Package ahead contains the common parts of the commands that compile steps ahead of time: the
// command tpustrategy, and programs that use package aot. [Open] opens a strategy over a topology,
// [Compile] compiles a step and writes its files, [Outcome] is the result as JSON and text, and
// [Failure] classifies errors by their exit codes.
package ahead
