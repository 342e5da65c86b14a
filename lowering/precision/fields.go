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

// During a trace, a policy changes the dtypes of variables and the list of variables of a GoMLX
// store. GoMLX does not export these fields.

// unexportedField returns a pointer to an unexported field of a GoMLX struct. A test fails if the
// field does not exist in the required version of GoMLX.
func unexportedField[T any](structPtr any, name string) (*T, error) {
	f := reflect.ValueOf(structPtr).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil, &errkind.Fault{Op: "precision: variables of a store",
			Reason: "this version of GoMLX has no field " + name,
			Hint:   "use the version of GoMLX in go.mod", Class: errkind.NotImplementedError,
			Match: errors.ErrUnsupported}
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}

// setDType changes the dtype in a variable's shape without converting its value.
func setDType(v *model.Variable, dtype dtypes.DType) error {
	shape, err := unexportedField[shapes.Shape](v, "shape")
	if err == nil {
		shape.DType = dtype
	}
	return err
}

type variableList struct {
	byPath *map[string]*model.Variable
	all    *[]*model.Variable
}

func variableListOf(store *model.Store) (*variableList, error) {
	byPath, err := unexportedField[map[string]*model.Variable](store, "variablesMap")
	if err != nil {
		return nil, err
	}
	all, err := unexportedField[[]*model.Variable](store, "variables")
	return &variableList{byPath, all}, err
}

// hide removes the selected variables from the store's list of variables. restore puts them back,
// and returns the variables that were created in between, in order.
func (l *variableList) hide(selected func(v *model.Variable) bool) (restore func() (made []*model.Variable)) {
	byPath, all := maps.Clone(*l.byPath), slices.Clone(*l.all)
	before := map[*model.Variable]bool{}
	for _, v := range all {
		before[v] = true
	}
	*l.all = slices.DeleteFunc(*l.all, func(v *model.Variable) bool {
		if !selected(v) {
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

func (l *variableList) add(v *model.Variable) {
	(*l.byPath)[v.Path()] = v
	*l.all = append(*l.all, v)
}
