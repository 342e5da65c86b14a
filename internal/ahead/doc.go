// Package ahead is what the commands that compile steps ahead of time have in common: the command
// tpustrategy, and the programs that use package aot. [Open] opens a strategy over a
// topology, [Compile] compiles a step for it and writes its files, [Outcome] is what came of it as
// JSON and text, and [Failure] sorts errors into the kinds that have an exit code.
package ahead
