package precision

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

// For the time of a trace a policy changes what a GoMLX store says of its variables: the dtype of one,
// and which there are. GoMLX keeps both to itself.

// field is a field of a struct of GoMLX's. A test fails if a build of GoMLX keeps it elsewhere.
func field[T any](of any, name string) (*T, error) {
	f := reflect.ValueOf(of).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil, &errkind.Fault{Op: "precision: variables of a store", Reason: "this build of GoMLX has no field " + name,
			Hint: "use the version of GoMLX that go.mod names", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}

// setDType makes a variable say that it has a dtype. Its value stays what it is.
func setDType(v *model.Variable, dtype dtypes.DType) error {
	shape, err := field[shapes.Shape](v, "shape")
	if err == nil {
		shape.DType = dtype
	}
	return err
}

// variableList is a store's list of variables.
type variableList struct {
	byPath *map[string]*model.Variable
	all    *[]*model.Variable
}

// variablesOf returns the list of a store.
func variablesOf(store *model.Store) (*variableList, error) {
	byPath, err := field[map[string]*model.Variable](store, "variablesMap")
	if err != nil {
		return nil, err
	}
	all, err := field[[]*model.Variable](store, "variables")
	return &variableList{byPath, all}, err
}

// hide takes the chosen variables out of the store, with their values. restore brings
// the store back to what it was and returns the variables that were made meanwhile, in their order.
func (l *variableList) hide(chosen func(v *model.Variable) bool) (restore func() (made []*model.Variable)) {
	byPath, all := maps.Clone(*l.byPath), slices.Clone(*l.all)
	before := map[*model.Variable]bool{}
	for _, v := range all {
		before[v] = true
	}
	*l.all = slices.DeleteFunc(*l.all, func(v *model.Variable) bool {
		if !chosen(v) {
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

// add puts a variable into the store, behind the others.
func (l *variableList) add(v *model.Variable) {
	(*l.byPath)[v.Path()] = v
	*l.all = append(*l.all, v)
}
