// Package corpus contains realistic programs, written as users of GoMLX write them. Every plugin
// and mesh must compile these programs and compute the same numbers.
//
// Each program has two sizes. At its real size, that of a published model or similar, it is lowered
// and compiled, but not run. At its small size it is run. Unless a program runs its layers in a
// loop, each layer adds its own operations to the program text, so the programs have only a few
// layers.
package corpus
