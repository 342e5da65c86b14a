package errkind

import (
	"fmt"
	"runtime/debug"
)

// PanicError reports that a function that the caller supplied has panicked. The object that called
// the function can still be used.
type PanicError struct {
	// Op is the package and the function that panicked, such as "input: the function of Map".
	Op string
	// Value is the value of the panic, and Stack is the stack of its goroutine.
	Value any
	Stack string
}

// Recover converts a panic to a [*PanicError] and stores it in err. It must be deferred.
func Recover(op string, err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Op: op, Value: p, Stack: string(debug.Stack())}
	}
}

// CatchPanic calls f and returns a [*PanicError] if f panics.
func CatchPanic[T any](op string, f func() (T, error)) (result T, err error) {
	defer Recover(op, &err)
	return f()
}

// Error returns a text with the function and the value of the panic.
func (e *PanicError) Error() string {
	if err := e.Unwrap(); err != nil {
		return Format(e.Op+" panicked", "", err, "")
	}
	return Format(e.Op+" panicked", fmt.Sprint(e.Value), nil, "")
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Kind returns the kind of the value of the panic. If the value is not an error with a kind, it
// returns RuntimeError.
func (e *PanicError) Kind() Kind { return KindOr(e.Unwrap(), RuntimeError) }
