// Package inside is the door between package strategy and its neighbors in this module. A
// neighbor declares in an interface what it needs of a strategy, a replica's context, a function
// or a compiled step beside their contract; [Of] gives it that. So package strategy exports nothing
// of it.
//
// A neighbor checks its interfaces when it is loaded, so that a method that is missing is found by
// every test:
//
//	var _ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
package inside

import (
	"fmt"
	"reflect"
)

// face returns the inner face of a thing of package strategy, or nil for any other.
var face func(x any) any

// Serve sets what gives inner faces. Package strategy calls it when it is loaded.
func Serve(f func(x any) any) { face = f }

// Of returns x as a T. It panics if x has no inner face, or if that lacks a method of T. It
// allocates nothing.
func Of[T any](x any) T {
	inner := face(x)
	of, ok := inner.(T)
	if !ok {
		panic(fmt.Sprintf("inside: %T has no face with the methods of %s", x, reflect.TypeFor[T]()))
	}
	return of
}
