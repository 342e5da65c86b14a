package input

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// errExited reports that a user's function called runtime.Goexit.
var errExited = newFault(errkind.RuntimeError, "call function", "return an error instead of calling runtime.Goexit",
	"a function of the dataset ended its goroutine")

// recoveringSource converts panics of a user's source to errors.
type recoveringSource struct{ Source }

func (f recoveringSource) Open(ctx context.Context, pass Pass, start State) (it Iterator, err error) {
	defer errkind.Recover("input: the source", &err)
	iterator, err := f.Source.Open(ctx, pass, start)
	if err != nil {
		return nil, err
	}
	return recoveringIterator{iterator}, nil
}

func (f recoveringSource) ShardFiles(num, index int) (src Source, err error) {
	defer errkind.Recover("input: the source", &err)
	shard, err := shardFiles(f.Source, num, index)
	if err != nil {
		return nil, err
	}
	return New(shard).source(), nil
}

type recoveringIterator struct{ in Iterator }

func (it recoveringIterator) Next(ctx context.Context) (e Element, err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.Next(ctx)
}

func (it recoveringIterator) State() (state State, err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.State()
}

func (it recoveringIterator) Close() (err error) {
	defer errkind.Recover("input: the source", &err)
	return it.in.Close()
}
