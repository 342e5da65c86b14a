package input

import (
	"context"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// operation is an operation on one input. Its input can be replaced, for example when files are
// divided between processes.
type operation struct {
	in          Source
	updateInfo  func(in Info) Info
	open        openFunc
	isShardHint bool // marks the place where the policy Hint divides the data
}

// openFunc opens the input and returns the iterator of an operation on it.
type openFunc func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error)

// derive returns the dataset of an operation on d, or d if d has an error.
func (d Dataset) derive(describe func(in Info) Info, s openFunc) Dataset {
	return d.wrap(func(in Source) Source { return operation{in, describe, s, false} })
}

func (d operation) Info() Info { return d.updateInfo(d.in.Info()) }

func (d operation) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	return d.open(ctx, d.in, pass, from)
}

func (d operation) replaceInputs(f func(Source) (Source, error), _ bool) (_ Source, err error) {
	d.in, err = f(d.in)
	return d, err
}

// composite is a source that reads other sources.
type composite interface {
	// replaceInputs returns the same operation with each input replaced by f(input). same reports that f
	// does not change the elements of the inputs.
	replaceInputs(f func(Source) (Source, error), same bool) (Source, error)
}

// mapSources applies f to each source.
func mapSources(in []Source, f func(Source) (Source, error)) (out []Source, err error) {
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
		return s.replaceInputs(func(in Source) (Source, error) { return shardFiles(in, num, index) }, false)
	}
	return nil, &errkind.Fault{Match: ErrNotShardable, Reason: fmt.Sprintf("%T does not read files", src), Hint: "use the policy Data or Off"}
}

// sameInfo is the describe function of an operation that does not change the Info.
func sameInfo(info Info) Info { return info }

// openWithCounters returns a start function for an operation whose position consists of n counters and the
// position of its input. make returns the operation's iterator, given the input's iterator and the
// counters.
func openWithCounters(op string, n int, make func(ctx context.Context, in Iterator, at []int64) (Iterator, error)) openFunc {
	return func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
		from, err := from.forOp(op, n, 1)
		if err != nil {
			return nil, err
		}
		it, err := in.Open(ctx, pass, from.Inputs[0])
		if err != nil {
			return nil, err
		}
		out, err := make(ctx, it, from.Counters)
		if err != nil {
			it.Close()
			return nil, err
		}
		return out, nil
	}
}

// boolCounter returns 1 for true and 0 for false, to store a bool as a counter.
func boolCounter(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// operationState returns the position of an operation: its counters and the position of its input.
func operationState(op string, in Iterator, at ...int64) (State, error) {
	inner, err := in.State()
	if err != nil {
		return State{}, err
	}
	return State{Op: op, Counters: at, Inputs: []State{inner}}, nil
}

// pieceReader reads the batches of an iterator and counts the pieces (rows or chunks) of the current
// batch.
type pieceReader struct {
	Iterator
	stateBefore State // position of the iterator before current
	current     Element
	n, next     int // number of pieces of current, and the index of the next piece to return
}

// readBatch reads the next batch. count returns its number of pieces.
func (p *pieceReader) readBatch(ctx context.Context, count func(Element) (int, error)) (err error) {
	if p.stateBefore, err = p.Iterator.State(); err != nil {
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
func (p *pieceReader) restore(ctx context.Context, next int64, count func(Element) (int, error)) error {
	if next == 0 {
		return nil
	}
	if err := p.readBatch(ctx, count); err == io.EOF || err == nil && next > int64(p.n) {
		return stateError("part %d of a batch of %d", next, p.n)
	} else if err != nil {
		return err
	}
	p.next = int(next)
	return nil
}

// state returns the position of an operation: the index of the next piece and further counters.
func (p *pieceReader) state(op string, more ...int64) (State, error) {
	if p.next >= p.n {
		return operationState(op, p.Iterator, append([]int64{0}, more...)...)
	}
	return State{Op: op, Counters: append([]int64{int64(p.next)}, more...), Inputs: []State{p.stateBefore}}, nil
}
