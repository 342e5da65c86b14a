package strategy

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// PanicError is a panic of a user function. The strategy stays usable.
type PanicError struct {
	// Function says which function it was, Value is what it panicked with.
	Function string
	Value    any
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("strategy: %s panicked: %v", e.Function, e.Value)
}

// Kind is that of what the function panicked with.
func (e *PanicError) Kind() errkind.Kind { return errkind.Of(e.Unwrap()) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guarded calls a user function; a panic of it is an error.
func guarded[T any](function string, f func() (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Function: function, Value: p}
		}
	}()
	return f()
}
