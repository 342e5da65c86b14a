// Package inside gives other packages of this module access to the internal methods of package
// strategy, which its exported API does not contain. A package declares the methods that it calls on a
// strategy, a replica context, a function or a compiled step as an interface, and [Of] returns the
// implementation.
//
// A package checks its interfaces when it is initialized, so that every test finds a missing method:
//
//	var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
package inside
