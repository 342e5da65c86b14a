package input

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// PanicError is a panic of a function or a source that was given to a dataset, on whatever goroutine it ran. It is the
// error of the call that needed its result; the iterator can be closed as after any other error.
type PanicError struct {
	// Function says which function it was.
	Function string
	// Value is what it panicked with.
	Value any
	// Stack is where.
	Stack string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("input: %s panicked: %v", e.Function, e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Kind is that of what the function panicked with.
func (e *PanicError) Kind() errkind.Kind { return errkind.Of(e.Unwrap()) }

// caught, deferred, turns a panic of what runs into an error.
func caught(function string, err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Function: function, Value: p, Stack: string(debug.Stack())}
	}
}

// errExited is the result of a function that ended its goroutine instead of returning one.
var errExited = errors.New("input: a function of the dataset ended its goroutine")

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
