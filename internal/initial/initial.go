package initial

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/ml/model"
)

// Initializer returns the initializer of a variable, or nil if it has none. It also returns nil if
// this version of GoMLX has no such field; then the test of this package fails.
func Initializer(v *model.Variable) model.VariableInitializer {
	field := reflect.ValueOf(v).Elem().FieldByName("initializer")
	if !field.IsValid() || field.Type() != reflect.TypeFor[model.VariableInitializer]() {
		return nil
	}
	return *(*model.VariableInitializer)(unsafe.Pointer(field.UnsafeAddr()))
}
