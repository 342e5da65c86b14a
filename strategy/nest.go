package strategy

import (
	"reflect"

	"github.com/tpustrategy/tpustrategy/internal/nest"
)

func isNest(t reflect.Type) bool { return nest.Is(t) }

// same reports whether two leaves are one object.
func same(a, b any) bool { return nest.Same(a, b) }

// zipNest walks nests of one structure together and puts what leaf returns for
// each place into a nest of that structure.
func zipNest(op string, nests []any, leaf func(path string, leaves []any) (any, error)) (any, error) {
	out, err := nest.Zip("", nests, leaf)
	return out, nestFault(op, err)
}

// mapNest replaces the leaves of one nest.
func mapNest(op string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	return mapNestAt(op, "", x, leaf)
}

// mapNestAt is mapNest for a nest that errors call by a name.
func mapNestAt(op, name string, x any, leaf func(path string, x any) (any, error)) (any, error) {
	out, err := nest.Map(name, x, leaf)
	return out, nestFault(op, err)
}

var nestKinds = map[nest.Mistake]Kind{nest.Structure: AssertionError, nest.Depth: ValueError, nest.Size: ValueError, nest.Key: ValueError, nest.Member: TypeError}

// nestFault is the error of an operation on a nest.
func nestFault(op string, err error) error {
	if wrong, ok := err.(*nest.Error); ok {
		return fault(nestKinds[wrong.Mistake], op, wrong.Hint, "%s", wrong.Reason)
	}
	return err
}
