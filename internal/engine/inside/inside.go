package inside

import (
	"fmt"
	"reflect"
)

// face returns the internal methods of a value of package strategy, or nil for another value.
var face func(x any) any

// Serve sets the function that returns the internal methods of a value. Package strategy calls it when
// it is initialized.
func Serve(f func(x any) any) { face = f }

// Of returns the internal methods of x as a T. It panics if x does not have a method of T. It does not
// allocate.
func Of[T any](x any) T {
	inner := face(x)
	of, ok := inner.(T)
	if !ok {
		panic(fmt.Sprintf("inside: %T has no face with the methods of %s", x, reflect.TypeFor[T]()))
	}
	return of
}
