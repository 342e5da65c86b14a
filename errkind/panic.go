package errkind

import (
	"fmt"
	"runtime/debug"
)

// PanicError reports that a function of the caller's panicked. What called it stays usable.
type PanicError struct {
	// Op says which function that was, with the package that called it, such as "input: the function
	// of Map".
	Op string
	// Value is the value of the panic, and Stack the stack of its goroutine.
	Value any
	Stack string
}

// Recover, deferred, turns a panic into a [*PanicError].
func Recover(op string, err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Op: op, Value: p, Stack: string(debug.Stack())}
	}
}

// Guard calls a function; a panic of it is a [*PanicError].
func Guard[T any](op string, f func() (T, error)) (result T, err error) {
	defer Recover(op, &err)
	return f()
}

// Error names the function and the value of the panic.
func (e *PanicError) Error() string {
	if err := e.Unwrap(); err != nil {
		return Text(e.Op+" panicked", "", err, "")
	}
	return Text(e.Op+" panicked", fmt.Sprint(e.Value), nil, "")
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Kind returns the kind of the panic's value if it is an error, or RuntimeError.
func (e *PanicError) Kind() Kind { return Or(e.Unwrap(), RuntimeError) }
