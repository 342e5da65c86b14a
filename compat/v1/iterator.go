package v1

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// InputIterator gives input for the replicas, on the devices. One goroutine uses it at
// a time.
type InputIterator struct {
	strategy    *strategy.TPUStrategy
	distributed *input.DistributedDataset
	it          *feed.Iterator
}

var _ eager.StepIterator = (*InputIterator)(nil)

// MakeDatasetIterator divides a dataset, which is batched with the global batch size, evenly among
// the replicas, and returns an initialized iterator over it: TensorFlow's make_dataset_iterator.
// Errors are those of [input.Distribute].
//
// Deprecated: use [input.Distribute] and [feed.Iterate].
func (s *Strategy) MakeDatasetIterator(ctx context.Context, ds input.Dataset) (*InputIterator, error) {
	return s.iterator(ctx, func(opts input.Options) (*input.DistributedDataset, error) { return input.Distribute(ds, opts) })
}

// MakeInputFnIterator calls fn once for this process, whose replicas each take an element of the
// dataset that it returns, and returns an initialized iterator: TensorFlow's
// make_input_fn_iterator. The mode has to be input.PerWorker: otherwise the error is of kind
// ValueError.
//
// Deprecated: use [input.FromFunction] and [feed.Iterate].
func (s *Strategy) MakeInputFnIterator(ctx context.Context, fn func(input.Context) (input.Dataset, error), mode input.Replication) (*InputIterator, error) {
	if mode != input.PerWorker {
		return nil, &errkind.Fault{Op: "v1: make input function iterator", Reason: fmt.Sprintf("input replication mode not supported: %s", mode), Hint: "use input.PerWorker", Class: errkind.ValueError}
	}
	return s.iterator(ctx, func(opts input.Options) (*input.DistributedDataset, error) { return input.FromFunction(fn, opts) })
}

func (s *Strategy) iterator(ctx context.Context, distribute func(input.Options) (*input.DistributedDataset, error)) (*InputIterator, error) {
	if err := strategy.RefuseTracing(ctx, "make an iterator", insteadOfLoading); err != nil {
		return nil, err
	}
	// Scope refuses what is not cross-replica context.
	if _, err := eager.Of(s.TPUStrategy).Scope(ctx); err != nil {
		return nil, err
	}
	opts, err := s.InputOptions()
	if err != nil {
		return nil, err
	}
	distributed, err := distribute(opts)
	if err != nil {
		return nil, err
	}
	it := &InputIterator{strategy: s.TPUStrategy, distributed: distributed}
	return it, it.Initialize(ctx)
}

// insteadOfLoading is what to do where a compiled step is being traced.
const insteadOfLoading = "take the input before the run, and pass it as an argument"

// Initialize starts from the beginning of the data.
func (it *InputIterator) Initialize(ctx context.Context) error {
	if err := strategy.RefuseTracing(ctx, "initialize", insteadOfLoading); err != nil {
		return err
	}
	if err := it.Close(); err != nil {
		return err
	}
	next, err := feed.Iterate(ctx, it.strategy, it.distributed)
	it.it = next
	return err
}

// GetNext returns the next element: a nest like the dataset's with a *[strategy.PerReplica] at each
// leaf. At the end the error is io.EOF. A call inside the replicas' code is an error of kind
// ValueError.
func (it *InputIterator) GetNext(ctx context.Context) (any, error) {
	if err := strategy.RefuseTracing(ctx, "next", insteadOfLoading); err != nil {
		return nil, err
	}
	if it.it == nil {
		return nil, fmt.Errorf("v1: next: %w: the iterator; call Initialize", strategy.ErrClosed)
	}
	return it.it.Next(ctx)
}

// Next returns the next element, as GetNext does; RunStepsOnIterator calls it.
func (it *InputIterator) Next(ctx context.Context) (any, error) { return it.GetNext(ctx) }

// Close releases the input. Initialize opens it again.
func (it *InputIterator) Close() error {
	if it == nil || it.it == nil {
		return nil
	}
	open := it.it
	it.it = nil
	return open.Close()
}
