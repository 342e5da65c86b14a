package enum

import (
	"fmt"
	"reflect"
)

// Name returns the name of a constant. names contains the names of the values 0, 1, and so on; an
// empty string means that a value has no name. For a value without a name, Name returns its type
// and number, such as "Rule(7)".
func Name[T ~int | ~uint8](v T, names ...string) string {
	if i := int(v); i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), int(v))
}
