package input

import (
	"context"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// derivation is a dataset made from one other: the description of an operation, which can be put on
// another input when files are divided.
type derivation struct {
	in       Source
	describe func(in Info) Info
	start    start
	hint     bool // where the policy Hint divides
}

// start opens an operation on an input.
type start func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error)

// derive returns the dataset of an operation, unless d is broken.
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

// composite is a source that reads others.
type composite interface {
	// remade returns the same operation on what f makes of its inputs. same says that these have the
	// elements that the inputs have.
	remade(f func(Source) (Source, error), same bool) (Source, error)
}

// each returns what f makes of some sources.
func each(in []Source, f func(Source) (Source, error)) (out []Source, err error) {
	out = make([]Source, len(in))
	for i := range in {
		if out[i], err = f(in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErrNotShardable matches the error of the policy [File] on a dataset that does not read files. Its
// text is that of TensorFlow's NotFoundError.
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

// unchanged describes an operation that changes nothing that is known.
func unchanged(info Info) Info { return info }

// over opens an operation whose position is n counters and the input's position: make is its
// iterator over the input's, from the counters on.
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

// flag is a counter that is 1 for true.
func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// stateOver puts an operation's counters on top of the input's position.
func stateOver(op string, in Iterator, at ...int64) (State, error) {
	inner, err := in.State()
	if err != nil {
		return State{}, err
	}
	return State{Op: op, At: at, In: []State{inner}}, nil
}

// pieces hands out the batches of an iterator piece by piece: rows, or chunks.
type pieces struct {
	Iterator
	before  State // of the iterator, before current
	current Element
	n, next int // the pieces of current, and the first that is not handed out
}

// load takes the next batch, of as many pieces as count says.
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

// restore goes to a piece of the batch that comes.
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

// state is the position of an operation: the piece, and further counters.
func (p *pieces) state(op string, more ...int64) (State, error) {
	if p.next >= p.n {
		return stateOver(op, p.Iterator, append([]int64{0}, more...)...)
	}
	return State{Op: op, At: append([]int64{int64(p.next)}, more...), In: []State{p.before}}, nil
}
