package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const defaultDepth = 2

// maxDepth is the maximum number of ready batches.
const maxDepth = 1 << 16

// ErrClosed reports the use of a closed feed.
var ErrClosed = errkind.New(errkind.RuntimeError, "feed: the feed is closed; create a new one")

func wrapError(op string, cause error) error { return &errkind.Fault{Op: "feed: " + op, Err: cause} }

func missingArgumentError(what string) error {
	return &errkind.Fault{Op: "feed: new", Reason: what, Hint: "see the error of the call that made it",
		Class: errkind.ValueError}
}

// Feed copies distributed input to the devices of a strategy ahead of the steps, for one pass over
// the data. Only one goroutine at a time may call Next, All, Args and State. Any goroutine may call
// Close.
type Feed struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended
	ready  chan feedItem
	slots  chan struct{} // one for each batch that is ready or in transfer
	placer *placer

	mu       sync.Mutex
	returned int // slots of returned batches that were not freed yet
	current  *Batch
	state    input.State
	endErr   error // error of all later calls of Next

	close    sync.Once
	closeErr error
}

// feedItem is a batch on the devices together with the position of the input after the batch, or
// the error that ends the feed.
type feedItem struct {
	batch *Batch
	step  *input.Step // instead of batch, if Next copies it to the devices
	state input.State
	err   error
}

// New opens the input and starts to feed. The input must be distributed over the strategy's
// replicas, and d must be the input of this process. The feed runs until Close is called or ctx is
// canceled. New returns an error of kind ValueError for an invalid option, [strategy.ErrContext] if
// it is called while a step is traced, and the errors of the input.
func New(ctx context.Context, s *strategy.TPUStrategy, d *input.DistributedDataset, opts Options) (*Feed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	return start(ctx, cancel, s, d, opts)
}

// start implements New. cancel must cancel ctx; start calls cancel if it returns an error.
func start(ctx context.Context, cancel context.CancelCauseFunc, s *strategy.TPUStrategy, d *input.DistributedDataset,
	opts Options) (f *Feed, err error) {
	defer func() {
		if err != nil {
			cancel(nil)
		}
	}()
	if err := strategy.RefuseTracing(ctx, "feed", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	switch {
	case s == nil || d == nil:
		return nil, missingArgumentError("no strategy, or no input")
	case opts.Depth < 0:
		return nil, optionError("Depth", fmt.Sprintf("%d steps", opts.Depth), fmt.Sprintf("0 is %d", defaultDepth))
	case opts.Depth > maxDepth:
		return nil, optionError("Depth", fmt.Sprintf("%d steps", opts.Depth), fmt.Sprintf("at most %d", maxDepth))
	case opts.Partial > Uneven:
		return nil, optionError("Partial", opts.Partial.String()+" is unknown", "use Exact, Pad or Uneven")
	case opts.Partial == Uneven && s.NumProcesses() > 1:
		return nil, optionError("Partial", "Uneven with several processes, which need batches of one shape", "use Pad")
	case opts.Rows < 0 || opts.Rows > 0 && opts.Partial != Pad:
		return nil, optionError("Rows", fmt.Sprintf("%d rows with %s", opts.Rows, opts.Partial),
			"give the rows to pad to with Pad, or 0")
	}
	if opts.Depth == 0 {
		opts.Depth = defaultDepth
	}
	p, err := newPlacer(s, d, opts)
	if err != nil {
		return nil, err
	}
	steps, err := d.OpenAt(ctx, opts.Start)
	if err != nil {
		return nil, wrapError("open the input", err)
	}
	if opts.Rows == 0 && steps.MaxRows() > 0 { // differs from d.MaxRows after a change of the number of replicas
		p.rows = steps.MaxRows()
	}
	state, err := steps.State()
	if err != nil {
		return nil, errors.Join(wrapError("open the input", err), steps.Close())
	}
	f = &Feed{
		done: make(chan struct{}), ready: make(chan feedItem, opts.Depth+1), slots: make(chan struct{}, opts.Depth),
		placer: p, state: state, cancel: cancel,
	}
	go f.readLoop(ctx, steps)
	return f, nil
}

// readLoop reads batches and copies them to the devices until the input ends, an error occurs, or
// ctx is done. The last item that it sends contains the error.
func (f *Feed) readLoop(ctx context.Context, steps *input.Steps) {
	defer close(f.done)
	finish := func(err error) {
		if context.Cause(ctx) == ErrClosed {
			err = ErrClosed
		}
		if closeErr := steps.Close(); err == io.EOF && closeErr != nil {
			err = wrapError("close the input", closeErr)
		}
		// The channel has room for an item for each slot, and for this one.
		f.ready <- feedItem{err: err}
	}
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			finish(wrapError("read the input", context.Cause(ctx)))
			return
		}
		next, err := f.readNext(ctx, steps)
		if err != nil {
			finish(err)
			return
		}
		f.ready <- next
	}
}

// readNext reads one batch and copies it to the devices.
func (f *Feed) readNext(ctx context.Context, steps *input.Steps) (next feedItem, err error) {
	defer errkind.Recover("feed: read the input", &err)
	step, err := steps.Next(ctx)
	if err == io.EOF {
		return feedItem{}, io.EOF
	}
	if err == nil {
		next.state, err = steps.State()
	}
	if err != nil {
		return feedItem{}, wrapError("read the input", err)
	}
	if f.placer.keepOnHost {
		next.step = &step
		return next, nil
	}
	next.batch, err = f.placer.place(ctx, step)
	return next, err
}

// Next returns the next batch and releases the previous one. If ctx is canceled, no batch is lost,
// and Next may be called again. At the end of the input Next returns io.EOF. After the input has
// failed, Next returns the same error again.
func (f *Feed) Next(ctx context.Context) (*Batch, error) {
	if err := strategy.RefuseTracing(ctx, "next", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endErr != nil {
		return nil, f.endErr
	}
	var next feedItem
	select {
	case next = <-f.ready:
	default:
		select {
		case next = <-f.ready:
		case <-ctx.Done():
			return nil, wrapError("waiting for a batch", context.Cause(ctx))
		}
	}
	err := f.releaseCurrent()
	if next.err == nil && err == nil && next.step != nil {
		next.batch, err = f.placer.place(ctx, *next.step)
	}
	if next.err == nil && err != nil {
		next = feedItem{err: errors.Join(err, next.batch.close())}
	}
	if next.err != nil {
		f.endErr = next.err
		return nil, f.endErr
	}
	f.freeSlots()
	f.current, f.state = next.batch, next.state
	return next.batch, nil
}

// freeSlots lets readLoop read more batches, but only if at most half of the ready batches are
// left. Waking the goroutine for each batch would cost about 1% of the time of a small step.
func (f *Feed) freeSlots() {
	f.returned++
	if len(f.ready) > (cap(f.slots)-1)/2 {
		return
	}
	for ; f.returned > 0; f.returned-- {
		<-f.slots
	}
}

func (f *Feed) releaseCurrent() error {
	if f.current == nil {
		return nil
	}
	err := f.current.close()
	f.current = nil
	return err
}

// All iterates over the remaining batches. If an error occurs, All yields the error once and ends
// the iteration. The feed remains open.
func (f *Feed) All(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		for {
			batch, err := f.Next(ctx)
			if err == io.EOF || !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// Args iterates over the remaining batches like [Feed.All], but yields each batch as a list of step
// arguments, for train.Evaluation.Over.
func (f *Feed) Args(ctx context.Context) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for batch, err := range f.All(ctx) {
			var args []any
			if err == nil {
				args = batch.Args()
			}
			if !yield(args, err) {
				return
			}
		}
	}
}

// State returns the position of the input after the last batch that Next returned. It may be called
// after the end of the input and after an error.
func (f *Feed) State() input.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Close stops the goroutine, waits for it, and releases the batches. A concurrent Next returns an
// error. Close cancels the context of an input that waits for data. An input without a context,
// such as a GoMLX dataset, completes its current call first. A second Close returns the result of
// the first.
func (f *Feed) Close() error {
	if f == nil || f.done == nil {
		return nil
	}
	f.close.Do(func() {
		f.cancel(ErrClosed)
		<-f.done
		f.mu.Lock()
		defer f.mu.Unlock()
		errs := []error{f.releaseCurrent()}
		for len(f.ready) > 0 {
			if next := <-f.ready; next.batch != nil {
				errs = append(errs, next.batch.close())
			}
		}
		if mask := f.placer.fullMask; mask != nil {
			errs = append(errs, mask.Close())
		}
		f.endErr = ErrClosed
		f.closeErr = errors.Join(errs...)
	})
	return f.closeErr
}
