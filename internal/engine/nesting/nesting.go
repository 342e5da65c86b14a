// Package nesting walks the nests that replicas take and give; its errors are the strategy's.
package nesting

import (
	"reflect"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/nest"
)

// Is reports whether values of a type are nests.
func Is(t reflect.Type) bool { return nest.Is(t) }

// Same reports whether two leaves are one object.
func Same(a, b any) bool { return nest.Same(a, b) }

// Zip walks nests of one structure together and puts what leaf returns for each place into a nest
// of that structure.
func Zip(op string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	out, err := nest.Zip("", nests, leaf)
	return out, Fault(op, err)
}

// Map replaces the leaves of one nest.
func Map(op string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	return MapAt(op, "", x, leaf)
}

// MapAt is [Map] for a nest that errors call by a name.
func MapAt(op, name string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	out, err := nest.Map(name, x, leaf)
	return out, Fault(op, err)
}

var kinds = map[nest.Mistake]errkind.Kind{
	nest.Structure: errkind.AssertionError, nest.Depth: errkind.ValueError, nest.Size: errkind.ValueError,
	nest.Key: errkind.ValueError, nest.Member: errkind.TypeError,
}

// Fault returns the strategy's error of an operation on a nest. Other errors stay as they are.
func Fault(op string, err error) error {
	if wrong, ok := err.(*nest.Error); ok {
		return fault.New(kinds[wrong.Mistake], op, wrong.Hint, "%s", wrong.Reason)
	}
	return err
}
