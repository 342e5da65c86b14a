// Package corpus is real programs at their real size, written with GoMLX as its users
// write them: what must compile for every plugin and mesh, and give the same numbers on
// all of them. A program that is refused here is one that a user would have been
// refused.
//
// Each program has a real size, that of the published model or the order of it, at which
// it is lowered and compiled but not run, and a small one, at which it runs. Layers
// unroll in a program's text, so a few stand for many.
package corpus
