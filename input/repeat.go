package input

import (
	"context"
	"io"
)

// Repeat repeats the dataset count times, or infinitely if count is negative, like tf.data's
// Dataset.repeat. Each repetition has its own [Pass], so a Shuffle before Repeat has another order
// each time. An empty dataset ends immediately, even if it is repeated infinitely. If count is
// negative and the cardinality of the dataset is unknown, the cardinality of the result is
// Infinite.
func (d Dataset) Repeat(count int) Dataset {
	return d.derive(func(info Info) Info {
		info.Cardinality = info.Cardinality.times(int64(count))
		return info
	}, func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
		from, err := from.of("repeat", 2, 1)
		if err != nil {
			return nil, err
		}
		r := &repeater{in: in, count: int64(count), outer: pass, epoch: from.At[0], some: from.At[1] != 0}
		r.it, err = in.Open(ctx, r.pass(), from.In[0])
		return r, err
	})
}

type repeater struct {
	in    Source
	count int64
	outer Pass
	epoch int64
	some  bool // the current pass has yielded an element
	it    Iterator
}

func (r *repeater) pass() Pass {
	epoch := uint64(r.epoch)
	if r.outer.Epoch != 0 {
		epoch += mix(r.outer.Epoch)
	}
	return Pass{Epoch: epoch}
}

func (r *repeater) Next(ctx context.Context) (Element, error) { return next(ctx, r) }

func (r *repeater) nextRun(ctx context.Context, most int) (run, error) {
	if r.count >= 0 && r.epoch >= r.count {
		return run{}, io.EOF
	}
	for {
		some, err := nextRun(ctx, r.it, most)
		if err != io.EOF {
			r.some = r.some || err == nil
			return some, err
		}
		// The last pass stays open at its end, so that its position can be saved.
		if !r.some || r.count >= 0 && r.epoch+1 >= r.count {
			return run{}, io.EOF
		}
		if err := r.it.Close(); err != nil {
			return run{}, err
		}
		r.epoch, r.some = r.epoch+1, false
		if r.it, err = r.in.Open(ctx, r.pass(), State{}); err != nil {
			r.it = closedIterator{}
			return run{}, err
		}
	}
}

func (r *repeater) State() (State, error) {
	return stateOver("repeat", r.it, r.epoch, flag(r.some))
}

func (r *repeater) Close() error { return r.it.Close() }

// closedIterator replaces an iterator that could not be opened.
type closedIterator struct{}

func (closedIterator) Next(context.Context) (Element, error) { return Element{}, errClosed }
func (closedIterator) State() (State, error)                 { return State{}, errClosed }
func (closedIterator) Close() error                          { return nil }
