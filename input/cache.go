package input

import (
	"context"
	"io"
	"sync/atomic"
)

// Cache stores all elements in memory during the first complete pass, like tf.data's Dataset.cache.
// Later passes read the cache instead of the input. The input is always opened with epoch 0, so a
// Shuffle before Cache has the same order in all passes: shuffle after Cache instead. Datasets
// derived from the result share the cache. Before the cache is complete, a restore reads the input
// from its start.
func (d Dataset) Cache() Dataset {
	shared := &cachedElements{}
	return d.wrapSource(func(src Source) Source { return cacheSource{input: src, elements: shared} })
}

// cachedElements points to the elements that Cache has stored. The pointer is nil until the first
// pass is complete.
type cachedElements = atomic.Pointer[[]lazyElement]

type cacheSource struct {
	input    Source
	elements *cachedElements
}

func (c cacheSource) Info() Info { return c.input.Info() }

func (c cacheSource) replaceInputs(replace func(Source) (Source, error), sameElements bool) (_ Source, err error) {
	c.input, err = replace(c.input)
	if !sameElements {
		c.elements = &cachedElements{}
	}
	return c, err
}

func (c cacheSource) Open(ctx context.Context, _ Pass, start State) (Iterator, error) {
	if list := c.elements.Load(); list != nil {
		get := func(i int) lazyElement { return (*list)[i] }
		return memorySource{op: "cache", count: len(*list), elementAt: get}.Open(ctx, Pass{}, start)
	}
	start, err := start.forOp("cache", 1, 0)
	if err != nil {
		return nil, err
	}
	// A restore in a later pass fills the cache again, in the same order, because the pass is
	// always 0.
	src, err := c.input.Open(ctx, Pass{}, State{})
	if err != nil {
		return nil, err
	}
	f := &cacheFiller{Iterator: src, cache: c.elements}
	if err := skipElements(ctx, f, start.Counters[0]); err != nil {
		f.Close()
		return nil, wrapError("cache", "", err)
	}
	return f, nil
}

// cacheFiller reads the input and collects its elements. At the end of the input it stores them in
// the cache.
type cacheFiller struct {
	Iterator
	cache    *cachedElements
	elements []lazyElement
}

func (f *cacheFiller) Next(ctx context.Context) (Element, error) { return nextElement(ctx, f) }

func (f *cacheFiller) nextRange(ctx context.Context, _ int) (elementRange, error) {
	r, err := nextRange(ctx, f.Iterator, 1)
	switch err {
	case nil:
		f.elements = append(f.elements, r.lazyElement)
	case io.EOF:
		f.cache.CompareAndSwap(nil, &f.elements)
	}
	return r, err
}

func (f *cacheFiller) State() (State, error) {
	return State{Op: "cache", Counters: []int64{int64(len(f.elements))}}, nil
}
