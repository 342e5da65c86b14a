package strategy

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// PanicError reports that a function of the user panicked. The strategy stays usable.
type PanicError struct {
	// Function names the function, Value is the value of the panic.
	Function string
	Value    any
}

// Error names the function and the value of the panic.
func (e *PanicError) Error() string {
	if err := e.Unwrap(); err != nil {
		return errkind.Text("strategy: "+e.Function+" panicked", "", err, "")
	}
	return errkind.Text("strategy: "+e.Function+" panicked", fmt.Sprint(e.Value), nil, "")
}

// Kind returns the kind of the panic's value, if that is an error.
func (e *PanicError) Kind() errkind.Kind { return errkind.Of(e.Unwrap()) }

// Unwrap returns the panic's value if it is an error, otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guarded calls a user function; a panic of it is an error.
func guarded[T any](function string, f func() (T, error)) (T, error) {
	return fault.Catch(f, func(p any) error { return &PanicError{Function: function, Value: p} })
}
