package input

import (
	"context"
	"io"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MapFunc turns one element into another. With [MapOptions].Parallel above 1 several calls run at a
// time. A panic of the function becomes a [*errkind.PanicError] of the element's Next.
type MapFunc func(ctx context.Context, e Element) (Element, error)

// MapOptions describes a Map. The zero value runs one call at a time, and says nothing of the
// results.
type MapOptions struct {
	Spec     Spec // of the results; zero: unknown. A result that does not fit it is an error
	Parallel int  // calls at a time; 0 and 1 run in the caller's goroutine
}

// Map applies fn to every element and keeps the elements' order, for any Parallel, as tf.data's
// Dataset.map does. If the dataset has batches, fn must return batches too: it may change the
// number of rows, but not remove the batch axis (use Unbatch). A restore calls fn again for
// elements that it reads again, so fn should return the same result each time.
func (d Dataset) Map(fn MapFunc, opts MapOptions) Dataset {
	if fn == nil {
		return fail("map", "give one", "the function is nil")
	}
	if opts.Parallel < 0 {
		return fail("map", "give a number from 0", "%d calls at a time", opts.Parallel)
	}
	call := func(ctx context.Context, e Element) (out Element, err error) {
		defer errkind.Recover("input: the function of Map", &err)
		return fn(ctx, e)
	}
	apply := func(ctx context.Context, e Element) (Element, error) {
		out, err := call(ctx, e)
		if err == nil {
			err = check(opts.Spec, out)
		}
		if err != nil {
			return Element{}, within("map", "", err)
		}
		return out, nil
	}
	return d.derive(func(info Info) Info {
		info.Spec, info.recut = opts.Spec, true
		return info
	}, over("map", 1, func(ctx context.Context, in Iterator, at []int64) (Iterator, error) {
		if err := drop(ctx, in, at[0]); err != nil || opts.Parallel <= 1 {
			return &mapper{in, apply}, err
		}
		return newPrefetcher(in, "map", opts.Parallel, apply)
	}))
}

// mapper has the positions of a parallel map, which may point a few elements back.
type mapper struct {
	Iterator
	fn MapFunc
}

func (m *mapper) Next(ctx context.Context) (Element, error) {
	e, err := m.Iterator.Next(ctx)
	if err != nil {
		return Element{}, err
	}
	return m.fn(ctx, e)
}

func (m *mapper) State() (State, error) { return stateOver("map", m.Iterator, 0) }

// Prefetch keeps up to n elements ready, as tf.data's Dataset.prefetch does. A goroutine of its own
// reads them; it starts with the first Next and ends at Close. A count of 0 reads nothing ahead.
// The saved position counts only the elements that Next has returned; a restore reads at most 16
// elements again.
func (d Dataset) Prefetch(n int) Dataset {
	if n < 0 {
		return fail("prefetch", "give a number from 0", "%d elements", n)
	}
	if n == 0 {
		return d
	}
	return d.derive(unchanged, over("prefetch", 1, func(ctx context.Context, in Iterator, at []int64) (Iterator, error) {
		if err := drop(ctx, in, at[0]); err != nil {
			return nil, err
		}
		return newPrefetcher(in, "prefetch", n, nil)
	}))
}

// prefetcher runs an input, and perhaps a function, in front of the consumer.
type prefetcher struct {
	op     string
	fn     MapFunc
	in     Iterator
	depth  int
	cancel context.CancelFunc
	ctx    context.Context // of the goroutines, ended by Close

	queue chan *pendingElement // nil before the first Next
	all   sync.WaitGroup
	first *pendingElement // taken from the queue, not handed out yet
	end   error

	mark  State // position of the input, since elements before what was handed out
	since int64
}

type pendingElement struct {
	done chan struct{}
	e    Element
	err  error
	// mark is the input's position before this element, where one was taken.
	mark *State
}

const aheadMarks = 16 // elements from one mark to the next

func newPrefetcher(in Iterator, op string, depth int, fn MapFunc) (Iterator, error) {
	mark, err := in.State()
	return &prefetcher{op: op, fn: fn, in: in, depth: depth, mark: mark}, err
}

// start runs the producer. The context carries the values of the first caller, not its deadline.
func (a *prefetcher) start(ctx context.Context) {
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	// The consumer waits for one result while depth more are on their way.
	a.queue = make(chan *pendingElement, a.depth)
	a.all.Go(a.produce)
}

func (a *prefetcher) produce() {
	defer close(a.queue)
	slots := make(chan struct{}, a.depth)
	for n := 0; ; n++ {
		p := &pendingElement{done: make(chan struct{})}
		a.read(p, n > 0 && n%aheadMarks == 0)
		last := p.err != nil
		if a.fn == nil || last {
			close(p.done)
		} else {
			select {
			case slots <- struct{}{}:
			case <-a.ctx.Done():
				return
			}
			a.all.Go(func() {
				defer func() { <-slots }()
				defer close(p.done)
				e := p.e
				p.e, p.err = Element{}, errExited
				p.e, p.err = a.fn(a.ctx, e)
			})
		}
		select {
		case a.queue <- p:
		case <-a.ctx.Done():
			return
		}
		if last {
			return
		}
	}
}

// read takes the next element of the input, and with mark the position before it, which may cost
// more than the element. Nobody else would recover its panic here.
func (a *prefetcher) read(p *pendingElement, mark bool) {
	defer errkind.Recover("input: the input of "+a.op, &p.err)
	if mark {
		var state State
		if state, p.err = a.in.State(); p.err != nil {
			return
		}
		p.mark = &state
	}
	p.e, p.err = a.in.Next(a.ctx)
}

func (a *prefetcher) Next(ctx context.Context) (Element, error) {
	if a.end != nil {
		return Element{}, a.end
	}
	if a.queue == nil {
		a.start(ctx)
	}
	if a.first == nil {
		select {
		case p, ok := <-a.queue:
			if !ok {
				if a.end = errExited; a.ctx.Err() != nil {
					a.end = errClosed
				}
				return Element{}, a.end
			}
			a.first = p
		case <-ctx.Done():
			return Element{}, ctx.Err()
		}
	}
	select {
	case <-a.first.done:
	case <-ctx.Done():
		return Element{}, ctx.Err()
	}
	p := a.first
	a.first = nil
	if p.err != nil {
		a.end = p.err
		return Element{}, p.err
	}
	if p.mark != nil {
		a.mark, a.since = *p.mark, 0
	}
	a.since++
	return p.e, nil
}

func (a *prefetcher) State() (State, error) {
	if a.end != nil && a.end != io.EOF {
		return State{}, a.end
	}
	return State{Op: a.op, At: []int64{a.since}, In: []State{a.mark}}, nil
}

func (a *prefetcher) Close() error {
	if a.queue != nil {
		a.cancel()
		for range a.queue { // until the producer closes it
		}
		a.all.Wait()
	}
	if a.end == nil {
		a.end = errClosed
	}
	return a.in.Close()
}
