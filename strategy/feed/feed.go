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

// maxDepth bounds the steps that are ready: each takes the memory of a batch.
const maxDepth = 1 << 16

// ErrClosed is matched by the errors of a feed that was closed.
var ErrClosed = errkind.New(errkind.RuntimeError, "feed: closed")

// failed returns the error of an operation of a feed that failed for a cause.
func failed(op string, cause error) error { return &errkind.Fault{Op: "feed: " + op, Err: cause} }

// nothing returns the error of a nil argument.
func nothing(what string) error {
	return &errkind.Fault{Op: "feed: new", Reason: what, Hint: "see the error of the call that made it", Class: errkind.ValueError}
}

// Feed is one pass over distributed input, on the devices of a strategy. One goroutine calls Next,
// All and State; any goroutine may call Close.
type Feed struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended
	ready  chan item
	slots  chan struct{} // one for each batch that is ready or on its way
	placer *placer

	mu    sync.Mutex
	taken int // slots of batches that were taken, not given back yet
	held  *Batch
	state input.State
	end   error // what Next answers from now on

	close    sync.Once
	closeErr error
}

// item is a batch that is ready, with the position after it, or the end.
type item struct {
	batch *Batch
	step  *input.Step // in place of the batch, if it stays on the host until it is asked for
	state input.State
	err   error
}

// New opens the input and begins to feed. The input must be distributed over the strategy's
// replicas, those of this process. The feed works until Close, or until ctx ends. Errors: one of
// kind ValueError for an option, [strategy.ErrContext], and those of the input.
func New(ctx context.Context, s *strategy.TPUStrategy, d *input.DistributedDataset, opts Options) (*Feed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	return start(ctx, cancel, s, d, opts)
}

// start begins to feed. cancel ends ctx, as it does after an error.
func start(ctx context.Context, cancel context.CancelCauseFunc, s *strategy.TPUStrategy, d *input.DistributedDataset, opts Options) (f *Feed, err error) {
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
		return nil, nothing("no strategy, or no input")
	case opts.Depth < 0:
		return nil, option("Depth", fmt.Sprintf("%d steps", opts.Depth), fmt.Sprintf("0 is %d", defaultDepth))
	case opts.Depth > maxDepth:
		return nil, option("Depth", fmt.Sprintf("%d steps", opts.Depth), fmt.Sprintf("at most %d", maxDepth))
	case opts.Partial > Uneven:
		return nil, option("Partial", opts.Partial.String()+" is unknown", "use Exact, Pad or Uneven")
	case opts.Partial == Uneven && s.NumProcesses() > 1:
		return nil, option("Partial", "Uneven with several processes, which need batches of one shape", "use Pad")
	case opts.Rows < 0 || opts.Rows > 0 && opts.Partial != Pad:
		return nil, option("Rows", fmt.Sprintf("%d rows with %s", opts.Rows, opts.Partial), "give the rows to pad to with Pad, or 0")
	}
	if opts.Depth == 0 {
		opts.Depth = defaultDepth
	}
	p, err := newPlacer(s, d, opts)
	if err != nil {
		return nil, err
	}
	steps, err := d.OpenAt(ctx, opts.From)
	if err != nil {
		return nil, failed("open the input", err)
	}
	if opts.Rows == 0 && steps.MaxRows() > 0 { // which a position of another number of replicas may change
		p.rows = steps.MaxRows()
	}
	state, err := steps.State()
	if err != nil {
		return nil, errors.Join(failed("open the input", err), steps.Close())
	}
	f = &Feed{
		done: make(chan struct{}), ready: make(chan item, opts.Depth+1), slots: make(chan struct{}, opts.Depth),
		placer: p, state: state, cancel: cancel,
	}
	go f.run(ctx, steps)
	return f, nil
}

// run reads and places steps until the input ends, something fails, or ctx is done. The last item
// says which.
func (f *Feed) run(ctx context.Context, steps *input.Steps) {
	defer close(f.done)
	end := func(err error) {
		if context.Cause(ctx) == ErrClosed {
			err = ErrClosed
		}
		if closeErr := steps.Close(); err == io.EOF && closeErr != nil {
			err = failed("close the input", closeErr)
		}
		// There is room: an item for each slot, and this one.
		f.ready <- item{err: err}
	}
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			end(failed("read the input", context.Cause(ctx)))
			return
		}
		next, err := f.next(ctx, steps)
		if err != nil {
			end(err)
			return
		}
		f.ready <- next
	}
}

// next reads and places one step.
func (f *Feed) next(ctx context.Context, steps *input.Steps) (next item, err error) {
	defer errkind.Recover("feed: read the input", &err)
	step, err := steps.Next(ctx)
	if err == io.EOF {
		return item{}, io.EOF
	}
	if err == nil {
		next.state, err = steps.State()
	}
	if err != nil {
		return item{}, failed("read the input", err)
	}
	if f.placer.keep {
		next.step = &step
		return next, nil
	}
	next.batch, err = f.placer.place(ctx, step)
	return next, err
}

// Next returns the next batch, which takes the place of the batch before. ctx bounds the wait for
// it; when ctx ends, nothing is lost and Next may be called again. At the end of the input the
// error is io.EOF. After an error of the input Next returns the same error again.
func (f *Feed) Next(ctx context.Context) (*Batch, error) {
	if err := strategy.RefuseTracing(ctx, "next", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		return nil, f.end
	}
	var next item
	select {
	case next = <-f.ready:
	default:
		select {
		case next = <-f.ready:
		case <-ctx.Done():
			return nil, failed("waiting for a batch", context.Cause(ctx))
		}
	}
	err := f.drop()
	if next.err == nil && err == nil && next.step != nil {
		next.batch, err = f.placer.place(ctx, *next.step)
	}
	if next.err == nil && err != nil {
		next = item{err: errors.Join(err, next.batch.close())}
	}
	if next.err != nil {
		f.end = next.err
		return nil, f.end
	}
	f.refill()
	f.held, f.state = next.batch, next.state
	return next.batch, nil
}

// refill gives the slot of a batch that was taken back, but not before half of them are free:
// waking the goroutine for each batch costs a small step a hundredth of its time, as another thread
// then looks for work between those of the plugin.
func (f *Feed) refill() {
	f.taken++
	if len(f.ready) > (cap(f.slots)-1)/2 {
		return
	}
	for ; f.taken > 0; f.taken-- {
		<-f.slots
	}
}

// drop closes the batch that was handed out last.
func (f *Feed) drop() error {
	if f.held == nil {
		return nil
	}
	err := f.held.close()
	f.held = nil
	return err
}

// All iterates over the remaining batches. It yields an error once, as the last thing. The feed
// stays open.
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

// Args iterates over the remaining batches as All does, each as a step's arguments: what
// train.Evaluation.Over takes.
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

// State returns the position of the input after the batch that Next returned last. It works after
// the end and after an error, too.
func (f *Feed) State() input.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Close ends the goroutine, waits for it, and releases the batches. A Next that waits returns an
// error. Close ends the context of an input that waits for data; an input without a context, such
// as a GoMLX dataset, ends its call first. A second Close returns the result of the first.
func (f *Feed) Close() error {
	if f == nil || f.done == nil {
		return nil
	}
	f.close.Do(func() {
		f.cancel(ErrClosed)
		<-f.done
		f.mu.Lock()
		defer f.mu.Unlock()
		errs := []error{f.drop()}
		for len(f.ready) > 0 {
			if next := <-f.ready; next.batch != nil {
				errs = append(errs, next.batch.close())
			}
		}
		if mask := f.placer.full; mask != nil {
			errs = append(errs, mask.Close())
		}
		f.end = ErrClosed
		f.closeErr = errors.Join(errs...)
	})
	return f.closeErr
}
