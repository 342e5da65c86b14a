package input

import (
	"context"
	"io"
)

// Repeat repeats the dataset count times, or infinitely if count is negative, like tf.data's
// Dataset.repeat. Each repetition is another [Pass], so a Shuffle before Repeat has another order
// each time. An empty dataset ends immediately, even with a negative count. The cardinality of an
// infinite repetition is Infinite unless the dataset is known to be empty.
func (d Dataset) Repeat(count int) Dataset {
	return d.derive(func(info Info) Info {
		info.Cardinality = info.Cardinality.multiply(int64(count))
		return info
	}, func(ctx context.Context, src Source, pass Pass, start State) (Iterator, error) {
		start, err := start.forOp("repeat", 2, 1)
		if err != nil {
			return nil, err
		}
		r := &repeatIterator{source: src, count: int64(count), firstPass: pass, epoch: start.Counters[0],
			yielded: start.Counters[1] != 0}
		r.current, err = src.Open(ctx, r.pass(), start.Inputs[0])
		return r, err
	})
}

type repeatIterator struct {
	source    Source
	count     int64
	firstPass Pass
	epoch     int64
	yielded   bool // the current pass has yielded an element
	current   Iterator
}

func (r *repeatIterator) pass() Pass {
	epoch := uint64(r.epoch)
	if r.firstPass.Epoch != 0 {
		epoch += splitMix64(r.firstPass.Epoch)
	}
	return Pass{Epoch: epoch}
}

func (r *repeatIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, r) }

func (r *repeatIterator) nextRange(ctx context.Context, limit int) (elementRange, error) {
	if r.count >= 0 && r.epoch >= r.count {
		return elementRange{}, io.EOF
	}
	for {
		got, err := nextRange(ctx, r.current, limit)
		if err != io.EOF {
			r.yielded = r.yielded || err == nil
			return got, err
		}
		// The last pass stays open at its end, so that its position can be saved.
		if !r.yielded || r.count >= 0 && r.epoch+1 >= r.count {
			return elementRange{}, io.EOF
		}
		if err := r.current.Close(); err != nil {
			return elementRange{}, err
		}
		r.epoch, r.yielded = r.epoch+1, false
		if r.current, err = r.source.Open(ctx, r.pass(), State{}); err != nil {
			r.current = closedIterator{}
			return elementRange{}, err
		}
	}
}

func (r *repeatIterator) State() (State, error) {
	return operationState("repeat", r.current, r.epoch, boolToInt64(r.yielded))
}

func (r *repeatIterator) Close() error { return r.current.Close() }

// closedIterator replaces an iterator that could not be opened.
type closedIterator struct{}

func (closedIterator) Next(context.Context) (Element, error) { return Element{}, errClosed }
func (closedIterator) State() (State, error)                 { return State{}, errClosed }
func (closedIterator) Close() error                          { return nil }
