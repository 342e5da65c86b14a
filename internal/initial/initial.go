package initial

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/gomlx/ml/model"
)

// Initializer returns the variable's initializer, or nil if it has none, or if this build of GoMLX keeps it
// elsewhere. The package's test fails then.
func Initializer(v *model.Variable) model.VariableInitializer {
	field := reflect.ValueOf(v).Elem().FieldByName("initializer")
	if !field.IsValid() || field.Type() != reflect.TypeFor[model.VariableInitializer]() {
		return nil
	}
	return *(*model.VariableInitializer)(unsafe.Pointer(field.UnsafeAddr()))
}
