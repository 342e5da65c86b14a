package input

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// PanicError reports a panic of a function or a source that was given to a dataset, on whatever
// goroutine it ran. The call that needed the result returns it. The iterator can be closed as after
// any other error.
type PanicError struct {
	// Function names the function that panicked.
	Function string
	// Value is the value of the panic.
	Value any
	// Stack is the stack of the panic's goroutine.
	Stack string
}

func (e *PanicError) Error() string {
	return errkind.Text("input", fmt.Sprintf("%s panicked: %v", e.Function, e.Value), nil, "")
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Kind returns the kind of the panic's value, if it is an error.
func (e *PanicError) Kind() errkind.Kind { return errkind.Of(e.Unwrap()) }

// caught, deferred, turns a panic of what runs into an error.
func caught(function string, err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Function: function, Value: p, Stack: string(debug.Stack())}
	}
}

// errExited is the result of a function that ended its goroutine instead of returning one.
var errExited = fault(errkind.RuntimeError, "call function", "return an error instead of calling runtime.Goexit", "a function of the dataset ended its goroutine")

// foreign is a source of the user's, foreignFiles one of files.
type foreign struct{ Source }

func (f foreign) Open(ctx context.Context, pass Pass, from State) (it Iterator, err error) {
	defer caught("the source", &err)
	in, err := f.Source.Open(ctx, pass, from)
	if err != nil {
		return nil, err
	}
	return foreignIterator{in}, nil
}

type foreignFiles struct {
	foreign
	files FileSharder
}

func (f foreignFiles) ShardFiles(num, index int) (src Source, err error) {
	defer caught("the source", &err)
	part, err := f.files.ShardFiles(num, index)
	if err != nil {
		return nil, err
	}
	return New(part).source(), nil
}

type foreignIterator struct{ in Iterator }

func (it foreignIterator) Next(ctx context.Context) (e Element, err error) {
	defer caught("the source", &err)
	return it.in.Next(ctx)
}

func (it foreignIterator) State() (state State, err error) {
	defer caught("the source", &err)
	return it.in.State()
}

func (it foreignIterator) Close() (err error) {
	defer caught("the source", &err)
	return it.in.Close()
}
