// Package held changes, for the time of a trace, what a GoMLX store says of its variables: the
// dtype of one, and which there are. GoMLX keeps both to itself.
package held

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// field is a field of a struct of GoMLX's. The package's test fails if a build of GoMLX keeps it
// elsewhere.
func field[T any](of any, name string) (*T, error) {
	f := reflect.ValueOf(of).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil, &errkind.Fault{Op: "precision: variables of a store", Reason: "this build of GoMLX has no field " + name,
			Hint: "use the version of GoMLX that go.mod names", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}

// SetDType makes a variable say that it has a dtype. Its value stays what it is.
func SetDType(v *model.Variable, dtype dtypes.DType) error {
	shape, err := field[shapes.Shape](v, "shape")
	if err == nil {
		shape.DType = dtype
	}
	return err
}

// List is a store's list of variables.
type List struct {
	byPath *map[string]*model.Variable
	all    *[]*model.Variable
}

// Of returns the list of a store.
func Of(store *model.Store) (*List, error) {
	byPath, err := field[map[string]*model.Variable](store, "variablesMap")
	if err != nil {
		return nil, err
	}
	all, err := field[[]*model.Variable](store, "variables")
	return &List{byPath, all}, err
}

// Hide takes the variables that hide chooses out of the store, with their values. restore brings
// the store back to what it was and returns the variables that were made meanwhile, in their order.
func (l *List) Hide(hide func(v *model.Variable) bool) (restore func() (made []*model.Variable)) {
	byPath, all := maps.Clone(*l.byPath), slices.Clone(*l.all)
	before := map[*model.Variable]bool{}
	for _, v := range all {
		before[v] = true
	}
	*l.all = slices.DeleteFunc(*l.all, func(v *model.Variable) bool {
		if !hide(v) {
			return false
		}
		delete(*l.byPath, v.Path())
		return true
	})
	return func() (made []*model.Variable) {
		for _, v := range *l.all {
			if !before[v] {
				made = append(made, v)
			}
		}
		*l.byPath, *l.all = byPath, all
		return made
	}
}

// Add puts a variable into the store, behind the others.
func (l *List) Add(v *model.Variable) {
	(*l.byPath)[v.Path()] = v
	*l.all = append(*l.all, v)
}
