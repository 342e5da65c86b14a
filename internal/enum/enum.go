// Package enum converts constants to their names.
package enum

import (
	"fmt"
	"reflect"
)

// Name returns the name of a constant. names are the names of the constants 0, 1 and so on; empty
// strings are skipped. The result for a number without a name is its type and value, such as
// "Rule(7)".
func Name[T ~int | ~uint8](v T, names ...string) string {
	if i := int(v); i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), int(v))
}
