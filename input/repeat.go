package input

import (
	"context"
	"io"
)

// Repeat runs through the dataset count times, or for ever if count is negative, as tf.data's
// Dataset.repeat does. Each time is a [Pass] of its own, so a Shuffle before Repeat has another
// order each time. A dataset of no elements ends at once, even if it is repeated for ever. A
// dataset of an unknown number of elements counts as infinite if it is repeated for ever.
func (d Dataset) Repeat(count int) Dataset {
	return d.derive(func(info Info) Info {
		info.Cardinality = info.Cardinality.times(int64(count))
		return info
	}, func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
		r := &repeater{in: in, count: int64(count), outer: pass}
		inner := State{}
		if !from.IsZero() {
			if err := from.want("repeat", 2, 1); err != nil {
				return nil, err
			}
			r.epoch, r.some, inner = from.At[0], from.At[1] != 0, from.In[0]
		}
		var err error
		r.it, err = in.Open(ctx, r.pass(), inner)
		if err != nil {
			return nil, err
		}
		return r, nil
	})
}

type repeater struct {
	in    Source
	count int64
	outer Pass
	epoch int64
	some  bool // the current pass has yielded something
	it    Iterator
}

func (r *repeater) pass() Pass {
	epoch := uint64(r.epoch)
	if r.outer.Epoch != 0 {
		epoch += mix(r.outer.Epoch)
	}
	return Pass{Epoch: epoch}
}

func (r *repeater) Next(ctx context.Context) (Element, error) { return whole(r.nextItem(ctx)) }

func (r *repeater) nextItem(ctx context.Context) (item, error) {
	one, err := r.nextRun(ctx, 1)
	return one.item, err
}

func (r *repeater) nextRun(ctx context.Context, most int) (run, error) {
	if r.count >= 0 && r.epoch >= r.count {
		return run{}, io.EOF
	}
	for {
		next, err := nextRun(ctx, r.it, most)
		if err != io.EOF {
			r.some = r.some || err == nil
			return next, err
		}
		// The finished pass stays open at the last end, so that its position can be saved.
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
	some := int64(0)
	if r.some {
		some = 1
	}
	return stateOver("repeat", r.it, r.epoch, some)
}

func (r *repeater) Close() error { return r.it.Close() }

// closedIterator takes the place of an iterator that could not be opened.
type closedIterator struct{}

func (closedIterator) Next(context.Context) (Element, error) { return Element{}, errClosed }
func (closedIterator) State() (State, error)                 { return State{}, errClosed }
func (closedIterator) Close() error                          { return nil }
