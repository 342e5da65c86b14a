package input

import (
	"context"
	"io"
	"sync"
)

// Cache keeps all elements in memory once a pass has come to its end, as tf.data's Dataset.cache
// does. Later passes read the kept elements and not the input. The input is always read as for the
// first pass, so a random order before Cache is the same in all passes: shuffle after it. The kept
// elements belong to this Dataset and to the datasets made from it, and are freed with them. A
// restore before the cache is full reads the input from its start.
func (d Dataset) Cache() Dataset {
	shared := &store{}
	return d.then(func(in Source) Source { return cacheSource{in: in, all: shared} })
}

// store holds the elements after the first complete pass.
type store struct {
	mu   sync.Mutex
	full bool
	list []item
}

func (s *store) get() ([]item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.full
}

func (s *store) put(list []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.full {
		s.list, s.full = list, true
	}
}

type cacheSource struct {
	in  Source
	all *store
}

func (c cacheSource) Info() Info { return c.in.Info() }

func (c cacheSource) ShardFiles(num, index int) (Source, error) {
	in, err := shardFiles(c.in, num, index)
	if err != nil {
		return nil, err
	}
	return cacheSource{in: in, all: &store{}}, nil // other files, so another cache
}

func (c cacheSource) Open(ctx context.Context, _ Pass, from State) (Iterator, error) {
	if list, ok := c.all.get(); ok {
		return openIndexed("cache", len(list), from, nil, func(i int) item { return list[i] })
	}
	skip := int64(0)
	if !from.IsZero() {
		if err := from.want("cache", 1, 0); err != nil {
			return nil, err
		}
		skip = from.At[0]
	}
	// A restore in a later pass fills the cache again, with the order that it had.
	in, err := c.in.Open(ctx, Pass{}, State{})
	if err != nil {
		return nil, err
	}
	f := &filler{Iterator: in, all: c.all}
	if err := drop(ctx, f, skip); err != nil {
		f.Close()
		return nil, within("cache", "", err)
	}
	return f, nil
}

// filler reads the input and keeps what it reads.
type filler struct {
	Iterator
	all  *store
	list []item
}

func (f *filler) Next(ctx context.Context) (Element, error) { return whole(f.nextItem(ctx)) }

func (f *filler) nextItem(ctx context.Context) (item, error) {
	i, err := nextItem(ctx, f.Iterator)
	switch err {
	case nil:
		f.list = append(f.list, i)
	case io.EOF:
		f.all.put(f.list)
	}
	return i, err
}

func (f *filler) State() (State, error) {
	return State{Op: "cache", At: []int64{int64(len(f.list))}}, nil
}
