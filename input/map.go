package input

import (
	"context"
	"io"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MapFunc converts one element to another. If [MapOptions].Parallel is above 1, several calls run
// concurrently. If the function panics, Next returns a [*errkind.PanicError] for that element.
type MapFunc func(ctx context.Context, e Element) (Element, error)

// MapOptions configures [Dataset.Map]. With the zero value, one call runs at a time, and the spec
// of the results is unknown.
type MapOptions struct {
	Spec     Spec // spec of the results; zero: unknown. A result that does not match is an error
	Parallel int  // number of concurrent calls; 0 and 1 run in the caller's goroutine
}

// Map applies fn to every element, like tf.data's Dataset.map. It preserves the order of the
// elements, even with parallel calls. If the elements are batches, fn must return batches. It may
// change the number of rows, but must not remove the batch axis (use Unbatch for that). After a
// restore, fn may be called again for some elements, so fn should be deterministic.
func (d Dataset) Map(fn MapFunc, opts MapOptions) Dataset {
	if fn == nil {
		return invalidDataset("map", "give one", "the function is nil")
	}
	if opts.Parallel < 0 {
		return invalidDataset("map", "give a number from 0", "%d calls at a time", opts.Parallel)
	}
	call := func(ctx context.Context, e Element) (out Element, err error) {
		defer errkind.Recover("input: the function of Map", &err)
		return fn(ctx, e)
	}
	apply := func(ctx context.Context, e Element) (Element, error) {
		out, err := call(ctx, e)
		if err == nil {
			err = checkSpec(opts.Spec, out)
		}
		if err != nil {
			return Element{}, wrapError("map", "", err)
		}
		return out, nil
	}
	return d.derive(func(info Info) Info {
		info.Spec, info.batchSizeUncertain = opts.Spec, true
		return info
	}, openWithCounters("map", 1, func(ctx context.Context, src Iterator, counters []int64) (Iterator, error) {
		if err := skipElements(ctx, src, counters[0]); err != nil || opts.Parallel <= 1 {
			return &mapIterator{src, apply}, err
		}
		return newPrefetcher(src, "map", opts.Parallel, apply)
	}))
}

// mapIterator implements Map with one call at a time. A parallel Map can resume from its State.
type mapIterator struct {
	Iterator
	fn MapFunc
}

func (m *mapIterator) Next(ctx context.Context) (Element, error) {
	e, err := m.Iterator.Next(ctx)
	if err != nil {
		return Element{}, err
	}
	return m.fn(ctx, e)
}

func (m *mapIterator) State() (State, error) { return operationState("map", m.Iterator, 0) }

// Prefetch reads up to n elements ahead in a separate goroutine, like tf.data's Dataset.prefetch.
// The goroutine starts with the first call of Next and exits at Close. If n is 0, Prefetch returns
// d. The saved position does not include elements that were read ahead. A restore reads at most 16
// elements again.
func (d Dataset) Prefetch(n int) Dataset {
	if n < 0 {
		return invalidDataset("prefetch", "give a number from 0", "%d elements", n)
	}
	if n == 0 {
		return d
	}
	return d.derive(keepInfo, openWithCounters("prefetch", 1, func(ctx context.Context, src Iterator,
		counters []int64) (Iterator, error) {
		if err := skipElements(ctx, src, counters[0]); err != nil {
			return nil, err
		}
		return newPrefetcher(src, "prefetch", n, nil)
	}))
}

// prefetchIterator reads up to depth elements ahead of its consumer. If fn is set, it applies fn to
// these elements concurrently.
type prefetchIterator struct {
	op     string
	fn     MapFunc
	input  Iterator
	depth  int
	cancel context.CancelFunc
	ctx    context.Context // context of the goroutines; canceled by Close

	queue   chan *pendingElement // nil before the first Next
	workers sync.WaitGroup
	pending *pendingElement // received from the queue, not returned yet
	err     error

	savedState    State // latest saved position of the input, and the number of elements returned after that position
	numSinceSaved int64
}

type pendingElement struct {
	done    chan struct{}
	element Element
	err     error
	// state is the input's position before this element, or nil if it was not recorded.
	state *State
}

const stateInterval = 16 // number of elements between two saved positions

func newPrefetcher(src Iterator, op string, depth int, fn MapFunc) (Iterator, error) {
	mark, err := src.State()
	return &prefetchIterator{op: op, fn: fn, input: src, depth: depth, savedState: mark}, err
}

// startProducer starts the goroutine that reads the input. Its context has the values of ctx, the
// first caller's context, but not its deadline.
func (a *prefetchIterator) startProducer(ctx context.Context) {
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	// The consumer waits for one result while the queue holds up to depth more.
	a.queue = make(chan *pendingElement, a.depth)
	a.workers.Go(a.produce)
}

func (a *prefetchIterator) produce() {
	defer close(a.queue)
	slots := make(chan struct{}, a.depth)
	for n := 0; ; n++ {
		p := &pendingElement{done: make(chan struct{})}
		a.readInput(p, n > 0 && n%stateInterval == 0)
		last := p.err != nil
		if a.fn == nil || last {
			close(p.done)
		} else {
			select {
			case slots <- struct{}{}:
			case <-a.ctx.Done():
				return
			}
			a.workers.Go(func() {
				defer func() { <-slots }()
				defer close(p.done)
				e := p.element
				p.element, p.err = Element{}, errExited
				p.element, p.err = a.fn(a.ctx, e)
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

// readInput reads the next element of the input and stores it in p. If saveState is set, readInput
// first saves the input's position, which may cost more than reading the element. It recovers
// panics, because it runs in a separate goroutine.
func (a *prefetchIterator) readInput(p *pendingElement, saveState bool) {
	defer errkind.Recover("input: the input of "+a.op, &p.err)
	if saveState {
		var state State
		if state, p.err = a.input.State(); p.err != nil {
			return
		}
		p.state = &state
	}
	p.element, p.err = a.input.Next(a.ctx)
}

func (a *prefetchIterator) Next(ctx context.Context) (Element, error) {
	if a.err != nil {
		return Element{}, a.err
	}
	if a.queue == nil {
		a.startProducer(ctx)
	}
	if a.pending == nil {
		select {
		case p, ok := <-a.queue:
			if !ok {
				if a.err = errExited; a.ctx.Err() != nil {
					a.err = errClosed
				}
				return Element{}, a.err
			}
			a.pending = p
		case <-ctx.Done():
			return Element{}, ctx.Err()
		}
	}
	select {
	case <-a.pending.done:
	case <-ctx.Done():
		return Element{}, ctx.Err()
	}
	p := a.pending
	a.pending = nil
	if p.err != nil {
		a.err = p.err
		return Element{}, p.err
	}
	if p.state != nil {
		a.savedState, a.numSinceSaved = *p.state, 0
	}
	a.numSinceSaved++
	return p.element, nil
}

func (a *prefetchIterator) State() (State, error) {
	if a.err != nil && a.err != io.EOF {
		return State{}, a.err
	}
	return State{Op: a.op, Counters: []int64{a.numSinceSaved}, Inputs: []State{a.savedState}}, nil
}

func (a *prefetchIterator) Close() error {
	if a.queue != nil {
		a.cancel()
		for range a.queue { // until the producer closes it
		}
		a.workers.Wait()
	}
	if a.err == nil {
		a.err = errClosed
	}
	return a.input.Close()
}
