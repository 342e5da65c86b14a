package nesting

import (
	"reflect"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/nest"
)

// IsNest reports whether values of type t contain other values, as structs, slices and maps of
// tensors do.
func IsNest(t reflect.Type) bool { return nest.IsNest(t) }

// IsSameLeaf reports whether two leaves are identical: the same pointer, function, map or slice
// memory, or equal values of another type, such as numbers. A leaf is a value that contains no
// other values.
func IsSameLeaf(a, b any) bool { return nest.IsIdentical(a, b) }

// Zip traverses several nested values of the same structure, such as structs of tensors. It calls
// leaf for each path in the structure, with the elements of all values at this path. Zip returns a
// nested value of this structure with the results. op names the operation in errors.
func Zip(op string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	out, err := nest.Zip("", nests, leaf)
	return out, Fault(op, err)
}

// Map returns a copy of the nested value x, such as a struct of tensors, in which each leaf is
// replaced by the result of the function leaf. op names the operation in errors.
func Map(op string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	return MapAt(op, "", x, leaf)
}

// MapAt is like [Map] for a nested value with a name, which errors contain.
func MapAt(op, name string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	out, err := nest.Map(name, x, leaf)
	return out, Fault(op, err)
}

var kinds = map[nest.ErrorKind]errkind.Kind{
	nest.DifferentStructure: errkind.AssertionError, nest.TooDeep: errkind.ValueError,
	nest.TooLarge: errkind.ValueError,
	nest.NaNKey:   errkind.ValueError, nest.WrongMemberType: errkind.TypeError,
}

// Fault converts the error of an operation on nested values to an error of package strategy. It
// returns other errors unchanged.
func Fault(op string, err error) error {
	if wrong, ok := err.(*nest.Error); ok {
		return fault.New(kinds[wrong.ErrorKind], op, wrong.Hint, "%s", wrong.Reason)
	}
	return err
}
