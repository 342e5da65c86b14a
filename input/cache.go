package input

import (
	"context"
	"io"
	"sync/atomic"
)

// Cache stores all elements in memory during the first complete pass, like tf.data's Dataset.cache.
// Later passes read the cache instead of the input. The input is always opened with epoch 0, so a
// Shuffle before Cache has the same order in all passes; shuffle after Cache instead. The cache is
// shared by this Dataset and the datasets derived from it, and is freed together with them. Before
// the cache is complete, a restore reads the input from its start.
func (d Dataset) Cache() Dataset {
	shared := &store{}
	return d.then(func(in Source) Source { return cacheSource{in: in, all: shared} })
}

// store holds all elements. It is nil until the first pass is complete.
type store = atomic.Pointer[[]item]

type cacheSource struct {
	in  Source
	all *store
}

func (c cacheSource) Info() Info { return c.in.Info() }

func (c cacheSource) remade(f func(Source) (Source, error), same bool) (_ Source, err error) {
	c.in, err = f(c.in)
	if !same {
		c.all = &store{}
	}
	return c, err
}

func (c cacheSource) Open(ctx context.Context, _ Pass, from State) (Iterator, error) {
	if list := c.all.Load(); list != nil {
		return memory{op: "cache", n: len(*list), get: func(i int) item { return (*list)[i] }}.Open(ctx, Pass{}, from)
	}
	from, err := from.of("cache", 1, 0)
	if err != nil {
		return nil, err
	}
	// A restore in a later pass fills the cache again, in the same order, because the pass is
	// always 0.
	in, err := c.in.Open(ctx, Pass{}, State{})
	if err != nil {
		return nil, err
	}
	f := &filler{Iterator: in, all: c.all}
	if err := drop(ctx, f, from.At[0]); err != nil {
		f.Close()
		return nil, within("cache", "", err)
	}
	return f, nil
}

// filler reads the input and appends each element to list. At the end of the input it stores the
// list in the cache.
type filler struct {
	Iterator
	all  *store
	list []item
}

func (f *filler) Next(ctx context.Context) (Element, error) { return next(ctx, f) }

func (f *filler) nextRun(ctx context.Context, _ int) (run, error) {
	r, err := nextRun(ctx, f.Iterator, 1)
	switch err {
	case nil:
		f.list = append(f.list, r.item)
	case io.EOF:
		f.all.CompareAndSwap(nil, &f.list)
	}
	return r, err
}

func (f *filler) State() (State, error) {
	return State{Op: "cache", At: []int64{int64(len(f.list))}}, nil
}
