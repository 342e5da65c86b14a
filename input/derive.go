package input

import (
	"context"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// derivation is an operation on one input. Its input can be replaced, for example when files are
// divided between processes.
type derivation struct {
	in       Source
	describe func(in Info) Info
	start    start
	hint     bool // marks the place where the policy Hint divides the data
}

// start opens the input and returns the iterator of an operation on it.
type start func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error)

// derive returns the dataset of an operation on d, or d if d has an error.
func (d Dataset) derive(describe func(in Info) Info, s start) Dataset {
	return d.then(func(in Source) Source { return derivation{in, describe, s, false} })
}

func (d derivation) Info() Info { return d.describe(d.in.Info()) }

func (d derivation) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	return d.start(ctx, d.in, pass, from)
}

func (d derivation) remade(f func(Source) (Source, error), _ bool) (_ Source, err error) {
	d.in, err = f(d.in)
	return d, err
}

// composite is a source that reads other sources.
type composite interface {
	// remade returns the same operation with each input replaced by f(input). same reports that f
	// does not change the elements of the inputs.
	remade(f func(Source) (Source, error), same bool) (Source, error)
}

// each applies f to each source.
func each(in []Source, f func(Source) (Source, error)) (out []Source, err error) {
	out = make([]Source, len(in))
	for i := range in {
		if out[i], err = f(in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErrNotShardable matches the error of the policy [File] for a dataset that does not read files. It
// has the text of TensorFlow's NotFoundError.
var ErrNotShardable = errkind.New(errkind.NotFoundError, "input: found an unshardable source dataset")

func shardFiles(src Source, num, index int) (Source, error) {
	switch s := src.(type) {
	case FileSharder:
		return s.ShardFiles(num, index)
	case composite:
		return s.remade(func(in Source) (Source, error) { return shardFiles(in, num, index) }, false)
	}
	return nil, &errkind.Fault{Match: ErrNotShardable, Reason: fmt.Sprintf("%T does not read files", src), Hint: "use the policy Data or Off"}
}

// unchanged is the describe function of an operation that does not change the Info.
func unchanged(info Info) Info { return info }

// over returns a start function for an operation whose position consists of n counters and the
// position of its input. make returns the operation's iterator, given the input's iterator and the
// counters.
func over(op string, n int, make func(ctx context.Context, in Iterator, at []int64) (Iterator, error)) start {
	return func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
		from, err := from.of(op, n, 1)
		if err != nil {
			return nil, err
		}
		it, err := in.Open(ctx, pass, from.In[0])
		if err != nil {
			return nil, err
		}
		out, err := make(ctx, it, from.At)
		if err != nil {
			it.Close()
			return nil, err
		}
		return out, nil
	}
}

// flag returns 1 for true and 0 for false, to store a bool as a counter.
func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// stateOver returns the position of an operation: its counters and the position of its input.
func stateOver(op string, in Iterator, at ...int64) (State, error) {
	inner, err := in.State()
	if err != nil {
		return State{}, err
	}
	return State{Op: op, At: at, In: []State{inner}}, nil
}

// pieces reads the batches of an iterator and counts the pieces (rows or chunks) of the current
// batch.
type pieces struct {
	Iterator
	before  State // position of the iterator before current
	current Element
	n, next int // number of pieces of current, and the index of the next piece to return
}

// load reads the next batch. count returns its number of pieces.
func (p *pieces) load(ctx context.Context, count func(Element) (int, error)) (err error) {
	if p.before, err = p.Iterator.State(); err != nil {
		return err
	}
	e, err := p.Iterator.Next(ctx)
	if err != nil {
		return err
	}
	n, err := count(e)
	if err != nil {
		return err
	}
	p.current, p.n, p.next = e, n, 0
	return nil
}

// restore loads the next batch and continues at piece next. It does nothing if next is 0.
func (p *pieces) restore(ctx context.Context, next int64, count func(Element) (int, error)) error {
	if next == 0 {
		return nil
	}
	if err := p.load(ctx, count); err == io.EOF || err == nil && next > int64(p.n) {
		return misfit("part %d of a batch of %d", next, p.n)
	} else if err != nil {
		return err
	}
	p.next = int(next)
	return nil
}

// state returns the position of an operation: the index of the next piece and further counters.
func (p *pieces) state(op string, more ...int64) (State, error) {
	if p.next >= p.n {
		return stateOver(op, p.Iterator, append([]int64{0}, more...)...)
	}
	return State{Op: op, At: append([]int64{int64(p.next)}, more...), In: []State{p.before}}, nil
}
