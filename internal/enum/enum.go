// Package enum writes the constants of a type as words.
package enum

import (
	"fmt"
	"reflect"
)

// Name is the word of a constant: words are those of 0, 1 and so on, and an empty one is of none. A
// number without a word is shown with its type, such as "Rule(7)".
func Name[T ~int | ~uint8](v T, words ...string) string {
	if i := int(v); i >= 0 && i < len(words) && words[i] != "" {
		return words[i]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), int(v))
}
