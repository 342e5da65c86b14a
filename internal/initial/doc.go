// Package initial reads the initializer of a GoMLX variable, which GoMLX keeps to itself: it runs
// all initializers of a store in one graph of one backend, where a strategy runs each for the
// devices that hold its variable.
package initial
