package nesting

import (
	"reflect"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/nest"
)

// Is reports whether values of a type are nests.
func Is(t reflect.Type) bool { return nest.IsNest(t) }

// Same reports whether two leaves are one object.
func Same(a, b any) bool { return nest.SameStructure(a, b) }

// Zip calls leaf with the leaves at each path of nests that have the same structure. It returns a
// nest of this structure with the results.
func Zip(op string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	out, err := nest.Zip("", nests, leaf)
	return out, Fault(op, err)
}

// Map replaces the leaves of one nest.
func Map(op string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	return MapAt(op, "", x, leaf)
}

// MapAt is like [Map]. Errors contain the name of the nest.
func MapAt(op, name string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	out, err := nest.Map(name, x, leaf)
	return out, Fault(op, err)
}

var kinds = map[nest.ErrorKind]errkind.Kind{
	nest.DifferentStructure: errkind.AssertionError, nest.TooDeep: errkind.ValueError,
	nest.TooLarge: errkind.ValueError,
	nest.NaNKey:   errkind.ValueError, nest.WrongMemberType: errkind.TypeError,
}

// Fault converts the error of an operation on a nest to an error of package strategy. It returns other
// errors unchanged.
func Fault(op string, err error) error {
	if wrong, ok := err.(*nest.Error); ok {
		return fault.New(kinds[wrong.ErrorKind], op, wrong.Hint, "%s", wrong.Reason)
	}
	return err
}
