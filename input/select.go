package input

import (
	"context"
	"io"
)

// Take yields the first n elements, or all elements if there are fewer. It is tf.data's
// Dataset.take, without its -1 for all elements.
func (d Dataset) Take(n int) Dataset {
	if n < 0 {
		return fail("take", "give a number from 0", "%d elements", n)
	}
	return d.derive(func(info Info) Info {
		if info.Cardinality == Infinite || info.Cardinality > Cardinality(n) {
			info.Cardinality = Cardinality(n)
		}
		return info
	}, over("take", 1, func(_ context.Context, in Iterator, at []int64) (Iterator, error) {
		return &taker{in, at[0], int64(n)}, nil
	}))
}

type taker struct {
	Iterator
	done, n int64
}

func (t *taker) Next(ctx context.Context) (Element, error) { return whole(t.nextItem(ctx)) }

func (t *taker) nextItem(ctx context.Context) (item, error) {
	one, err := t.nextRun(ctx, 1)
	return one.item, err
}

func (t *taker) nextRun(ctx context.Context, most int) (run, error) {
	if t.done >= t.n {
		return run{}, io.EOF
	}
	next, err := nextRun(ctx, t.Iterator, int(min(int64(most), t.n-t.done)))
	if err == nil {
		t.done += int64(next.n)
	}
	return next, err
}

func (t *taker) State() (State, error) { return stateOver("take", t.Iterator, t.done) }

// Skip leaves out the first n elements of each pass, as tf.data's Dataset.skip does.
func (d Dataset) Skip(n int) Dataset {
	if n < 0 {
		return fail("skip", "give a number from 0", "%d elements", n)
	}
	return d.derive(func(info Info) Info {
		if info.Cardinality >= 0 {
			info.Cardinality = max(0, info.Cardinality-Cardinality(n))
		}
		return info
	}, over("skip", 1, func(_ context.Context, in Iterator, at []int64) (Iterator, error) {
		return &picker{Iterator: in, op: "skip", pos: at[0], keep: func(pos int64) bool { return pos >= int64(n) }}, nil
	}))
}

// Shard yields the elements whose number is index modulo num: one of num parts of the dataset.
// Every part reads the whole input. It is tf.data's Dataset.shard.
func (d Dataset) Shard(num, index int) Dataset {
	if num < 1 || index < 0 || index >= num {
		return fail("shard", "give an index from 0 to one less than the number", "part %d of %d", index, num)
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
	}, over("shard", 1, func(_ context.Context, in Iterator, at []int64) (Iterator, error) {
		return &picker{Iterator: in, op: "shard", pos: at[0], keep: func(pos int64) bool { return pos%int64(num) == int64(index) }}, nil
	}))
}

// picker keeps elements by their number.
type picker struct {
	Iterator
	op   string
	pos  int64
	keep func(pos int64) bool
}

func (p *picker) Next(ctx context.Context) (Element, error) { return whole(p.nextItem(ctx)) }

func (p *picker) nextItem(ctx context.Context) (item, error) {
	for {
		i, err := nextItem(ctx, p.Iterator)
		if err != nil {
			return item{}, err
		}
		p.pos++
		if p.keep(p.pos - 1) {
			return i, nil
		}
	}
}

func (p *picker) State() (State, error) { return stateOver(p.op, p.Iterator, p.pos) }

// Concatenate yields the elements of d, then the elements of each of the others in order. Its spec
// holds what all datasets agree on. It is tf.data's Dataset.concatenate.
func (d Dataset) Concatenate(others ...Dataset) Dataset {
	c := concatenation{d.source()}
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

type concatenation []Source

func (c concatenation) Info() Info {
	info := c[0].Info()
	for _, s := range c[1:] {
		next := s.Info()
		spec, ok := merge(info.Spec, next.Spec)
		if !ok {
			spec = Spec{}
		}
		info.Spec = spec
		info.Cardinality = info.Cardinality.plus(next.Cardinality)
		info.Files, info.recut = info.Files || next.Files, info.recut || next.recut
		switch {
		case info.BatchSize == 0 || next.BatchSize == 0:
			info.BatchSize = 0
		case info.BatchSize != next.BatchSize:
			info.BatchSize = Unknown
		}
	}
	return info
}

func (c concatenation) ShardFiles(num, index int) (Source, error) {
	out := make(concatenation, len(c))
	for i, s := range c {
		part, err := shardFiles(s, num, index)
		if err != nil {
			return nil, err
		}
		out[i] = part
	}
	return out, nil
}

func (c concatenation) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	it := &concatenator{parts: c, pass: pass}
	inner := State{}
	if !from.IsZero() {
		if err := from.want("concatenate", 1, 1); err != nil {
			return nil, err
		}
		if from.At[0] >= int64(len(c)) {
			return nil, misfit("part %d of %d", from.At[0], len(c))
		}
		it.at, inner = int(from.At[0]), from.In[0]
	}
	var err error
	if it.in, err = c[it.at].Open(ctx, pass, inner); err != nil {
		return nil, err
	}
	return it, nil
}

type concatenator struct {
	parts concatenation
	pass  Pass
	at    int
	in    Iterator
}

func (c *concatenator) Next(ctx context.Context) (Element, error) { return whole(c.nextItem(ctx)) }

func (c *concatenator) nextItem(ctx context.Context) (item, error) {
	one, err := c.nextRun(ctx, 1)
	return one.item, err
}

func (c *concatenator) nextRun(ctx context.Context, most int) (run, error) {
	for {
		next, err := nextRun(ctx, c.in, most)
		if err != io.EOF || c.at+1 >= len(c.parts) {
			return next, err
		}
		if err := c.in.Close(); err != nil {
			return run{}, err
		}
		c.at++
		if c.in, err = c.parts[c.at].Open(ctx, c.pass, State{}); err != nil {
			c.in = closedIterator{}
			return run{}, err
		}
	}
}

func (c *concatenator) State() (State, error) { return stateOver("concatenate", c.in, int64(c.at)) }
func (c *concatenator) Close() error          { return c.in.Close() }
