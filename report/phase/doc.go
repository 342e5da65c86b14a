// Package phase describes the progress of building a program: the current stage, and the target
// devices. The code that compiles reports it, and package fit/progress shows it.
package phase
