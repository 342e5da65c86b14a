package nesting

import (
	"reflect"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/nest"
)

// IsNest reports whether values of type t are nests, which means that they contain other values.
func IsNest(t reflect.Type) bool { return nest.IsNest(t) }

// IsSameLeaf reports whether two leaves are identical: the same pointer, function, map or slice
// memory, or equal values of another type, such as numbers.
func IsSameLeaf(a, b any) bool { return nest.IsIdentical(a, b) }

// Zip calls leaf for each path of several nests of the same structure, with the leaves at this
// path. It returns a nest of this structure with the results. op names the operation in errors.
func Zip(op string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	out, err := nest.Zip("", nests, leaf)
	return out, Fault(op, err)
}

// Map returns the nest x with each leaf replaced by the result of leaf. op names the operation in errors.
func Map(op string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	return MapAt(op, "", x, leaf)
}

// MapAt is like [Map] for a nest with a name, which errors contain.
func MapAt(op, name string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	out, err := nest.Map(name, x, leaf)
	return out, Fault(op, err)
}

var kinds = map[nest.ErrorKind]errkind.Kind{
	nest.DifferentStructure: errkind.AssertionError, nest.TooDeep: errkind.ValueError,
	nest.TooLarge: errkind.ValueError,
	nest.NaNKey:   errkind.ValueError, nest.WrongMemberType: errkind.TypeError,
}

// Fault converts the error of an operation on a nest to an error of package strategy. It returns
// other errors unchanged.
func Fault(op string, err error) error {
	if wrong, ok := err.(*nest.Error); ok {
		return fault.New(kinds[wrong.ErrorKind], op, wrong.Hint, "%s", wrong.Reason)
	}
	return err
}
