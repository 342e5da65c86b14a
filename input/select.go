package input

import (
	"context"
	"io"
)

// Take yields the first n elements, or all elements if there are fewer, like tf.data's
// Dataset.take. A negative n is an error, unlike in TensorFlow.
func (d Dataset) Take(n int) Dataset {
	if n < 0 {
		return invalidDataset("take", "give a number from 0", "%d elements", n)
	}
	return d.derive(func(info Info) Info {
		if info.Cardinality == Infinite || info.Cardinality > Cardinality(n) {
			info.Cardinality = Cardinality(n)
		}
		return info
	}, openWithCounters("take", 1, func(_ context.Context, src Iterator, counters []int64) (Iterator, error) {
		return &takeIterator{src, counters[0], int64(n)}, nil
	}))
}

type takeIterator struct {
	Iterator
	returned, limit int64
}

func (t *takeIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, t) }

func (t *takeIterator) nextRange(ctx context.Context, limit int) (elementRange, error) {
	if t.returned >= t.limit {
		return elementRange{}, io.EOF
	}
	r, err := nextRange(ctx, t.Iterator, int(min(int64(limit), t.limit-t.returned)))
	if err == nil {
		t.returned += int64(r.count)
	}
	return r, err
}

func (t *takeIterator) State() (State, error) { return operationState("take", t.Iterator, t.returned) }

// Skip omits the first n elements of each pass, like tf.data's Dataset.skip.
func (d Dataset) Skip(n int) Dataset {
	if n < 0 {
		return invalidDataset("skip", "give a number from 0", "%d elements", n)
	}
	return d.derive(func(info Info) Info {
		if info.Cardinality >= 0 {
			info.Cardinality = max(0, info.Cardinality-Cardinality(n))
		}
		return info
	}, openWithCounters("skip", 1, func(_ context.Context, src Iterator, counters []int64) (Iterator, error) {
		return &filterIterator{Iterator: src, op: "skip", index: counters[0],
			keepIndex: func(pos int64) bool { return pos >= int64(n) }}, nil
	}))
}

// Shard yields the elements whose index is index modulo num, like tf.data's Dataset.shard. Every
// shard reads the complete input.
func (d Dataset) Shard(num, index int) Dataset {
	if num < 1 || index < 0 || index >= num {
		return invalidDataset("shard", "give an index from 0 to one less than the number", "part %d of %d", index, num)
	}
	return d.derive(func(info Info) Info {
		if n := Cardinality(num); info.Cardinality >= 0 {
			full, rest := info.Cardinality/n, info.Cardinality%n
			info.Cardinality = full
			if Cardinality(index) < rest {
				info.Cardinality++
			}
		}
		return info
	}, openWithCounters("shard", 1, func(_ context.Context, src Iterator, counters []int64) (Iterator, error) {
		return &filterIterator{Iterator: src, op: "shard", index: counters[0],
			keepIndex: func(pos int64) bool { return pos%int64(num) == int64(index) }}, nil
	}))
}

// filterIterator yields the elements whose index satisfies keepIndex.
type filterIterator struct {
	Iterator
	op        string
	index     int64
	keepIndex func(pos int64) bool
}

func (p *filterIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, p) }

func (p *filterIterator) nextRange(ctx context.Context, _ int) (elementRange, error) {
	for {
		r, err := nextRange(ctx, p.Iterator, 1)
		if err != nil {
			return elementRange{}, err
		}
		p.index++
		if p.keepIndex(p.index - 1) {
			return r, nil
		}
	}
}

func (p *filterIterator) State() (State, error) { return operationState(p.op, p.Iterator, p.index) }

// Concatenate yields the elements of d, then the elements of each of the others in order, like
// tf.data's Dataset.concatenate. A dimension whose size differs between the datasets is [Unknown]
// in the spec of the result. If the structures, kinds or ranks differ, the spec is unknown.
func (d Dataset) Concatenate(others ...Dataset) Dataset {
	c := concatSource{d.source()}
	for _, o := range append([]Dataset{d}, others...) {
		if o.Err() != nil {
			return o
		}
	}
	for _, o := range others {
		c = append(c, o.source())
	}
	return Dataset{c}
}

type concatSource []Source

func (c concatSource) Info() Info {
	info := c[0].Info()
	for _, s := range c[1:] {
		next := s.Info()
		spec, ok := mergeSpecs(info.Spec, next.Spec)
		if !ok {
			spec = Spec{}
		}
		info.Spec = spec
		info.Cardinality = info.Cardinality.add(next.Cardinality)
		info.mergeBatchSize(next)
	}
	return info
}

func (c concatSource) replaceInputs(replace func(Source) (Source, error), _ bool) (Source, error) {
	out, err := mapSources(c, replace)
	return concatSource(out), err
}

func (c concatSource) Open(ctx context.Context, pass Pass, start State) (Iterator, error) {
	start, err := start.forOp("concatenate", 1, 1)
	if err != nil {
		return nil, err
	}
	if start.Counters[0] >= int64(len(c)) {
		return nil, stateError("part %d of %d", start.Counters[0], len(c))
	}
	it := &concatIterator{sources: c, pass: pass, index: int(start.Counters[0])}
	it.in, err = c[it.index].Open(ctx, pass, start.Inputs[0])
	return it, err
}

type concatIterator struct {
	sources concatSource
	pass    Pass
	index   int
	in      Iterator
}

func (c *concatIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, c) }

func (c *concatIterator) nextRange(ctx context.Context, limit int) (elementRange, error) {
	for {
		r, err := nextRange(ctx, c.in, limit)
		if err != io.EOF || c.index+1 >= len(c.sources) {
			return r, err
		}
		if err := c.in.Close(); err != nil {
			return elementRange{}, err
		}
		c.index++
		if c.in, err = c.sources[c.index].Open(ctx, c.pass, State{}); err != nil {
			c.in = closedIterator{}
			return elementRange{}, err
		}
	}
}

func (c *concatIterator) State() (State, error) {
	return operationState("concatenate", c.in, int64(c.index))
}
func (c *concatIterator) Close() error { return c.in.Close() }
