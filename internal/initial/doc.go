// Package initial reads the initializer of a GoMLX variable from a private field. GoMLX runs all
// initializers of a store in one graph of one backend. A strategy runs each initializer only for
// the devices that store the variable.
package initial
