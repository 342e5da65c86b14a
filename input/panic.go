package input

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// errExited is the error of a function that called runtime.Goexit.
var errExited = fault(errkind.RuntimeError, "call function", "return an error instead of calling runtime.Goexit", "a function of the dataset ended its goroutine")

// foreign wraps a user's source and recovers its panics.
type foreign struct{ Source }

func (f foreign) Open(ctx context.Context, pass Pass, from State) (it Iterator, err error) {
	defer errkind.Recover("input: the source", &err)
	in, err := f.Source.Open(ctx, pass, from)
	if err != nil {
		return nil, err
	}
	return foreignIterator{in}, nil
}

func (f foreign) ShardFiles(num, index int) (src Source, err error) {
	defer errkind.Recover("input: the source", &err)
	part, err := shardFiles(f.Source, num, index)
	if err != nil {
		return nil, err
	}
	return New(part).source(), nil
}

type foreignIterator struct{ in Iterator }

func (it foreignIterator) Next(ctx context.Context) (e Element, err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.Next(ctx)
}

func (it foreignIterator) State() (state State, err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.State()
}

func (it foreignIterator) Close() (err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.Close()
}
