package modelfields

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/ml/model"
)

// Initializer returns the initializer of a variable, or nil if the variable has none. A strategy runs
// each initializer only for the devices that store the variable. GoMLX's own method runs all
// initializers of a store in one graph of one backend.
func Initializer(v *model.Variable) model.VariableInitializer {
	field := reflect.ValueOf(v).Elem().FieldByName("initializer")
	if !field.IsValid() || field.Type() != reflect.TypeFor[model.VariableInitializer]() {
		return nil
	}
	return *(*model.VariableInitializer)(unsafe.Pointer(field.UnsafeAddr()))
}

// UsedNames returns the names that were already passed to scope.In and that GoMLX therefore rejects
// in another call. Changes to the map change the scope.
func UsedNames(scope *model.Scope) map[string]struct{} {
	field := reflect.ValueOf(scope).Elem().FieldByName("visitedPaths")
	if !field.IsValid() || !field.CanConvert(reflect.TypeFor[map[string]struct{}]()) {
		return nil
	}
	return *(*map[string]struct{})(unsafe.Pointer(field.UnsafeAddr()))
}
