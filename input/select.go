package input

import (
	"context"
	"io"
)

// Take yields the first n elements, or all elements if there are fewer, like tf.data's
// Dataset.take. A negative n is an error, unlike in TensorFlow.
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

func (t *taker) Next(ctx context.Context) (Element, error) { return next(ctx, t) }

func (t *taker) nextRun(ctx context.Context, most int) (run, error) {
	if t.done >= t.n {
		return run{}, io.EOF
	}
	r, err := nextRun(ctx, t.Iterator, int(min(int64(most), t.n-t.done)))
	if err == nil {
		t.done += int64(r.n)
	}
	return r, err
}

func (t *taker) State() (State, error) { return stateOver("take", t.Iterator, t.done) }

// Skip omits the first n elements of each pass, like tf.data's Dataset.skip.
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

// Shard yields the elements whose index is index modulo num, like tf.data's Dataset.shard. Every
// shard reads the complete input.
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

// picker yields the elements for whose index keep returns true.
type picker struct {
	Iterator
	op   string
	pos  int64
	keep func(pos int64) bool
}

func (p *picker) Next(ctx context.Context) (Element, error) { return next(ctx, p) }

func (p *picker) nextRun(ctx context.Context, _ int) (run, error) {
	for {
		r, err := nextRun(ctx, p.Iterator, 1)
		if err != nil {
			return run{}, err
		}
		p.pos++
		if p.keep(p.pos - 1) {
			return r, nil
		}
	}
}

func (p *picker) State() (State, error) { return stateOver(p.op, p.Iterator, p.pos) }

// Concatenate yields the elements of d, then the elements of each of the others in order, like
// tf.data's Dataset.concatenate. Dimensions that differ are [Unknown] in its spec; if the
// structures, kinds or ranks differ, the spec is unknown.
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
		info.join(next)
	}
	return info
}

func (c concatenation) remade(f func(Source) (Source, error), _ bool) (Source, error) {
	out, err := each(c, f)
	return concatenation(out), err
}

func (c concatenation) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	from, err := from.of("concatenate", 1, 1)
	if err != nil {
		return nil, err
	}
	if from.At[0] >= int64(len(c)) {
		return nil, misfit("part %d of %d", from.At[0], len(c))
	}
	it := &concatenator{parts: c, pass: pass, at: int(from.At[0])}
	it.in, err = c[it.at].Open(ctx, pass, from.In[0])
	return it, err
}

type concatenator struct {
	parts concatenation
	pass  Pass
	at    int
	in    Iterator
}

func (c *concatenator) Next(ctx context.Context) (Element, error) { return next(ctx, c) }

func (c *concatenator) nextRun(ctx context.Context, most int) (run, error) {
	for {
		r, err := nextRun(ctx, c.in, most)
		if err != io.EOF || c.at+1 >= len(c.parts) {
			return r, err
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
