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

// InputIterator reads input for the replicas and copies it to the devices. It is not safe for
// concurrent use.
type InputIterator struct {
	strategy    *strategy.TPUStrategy
	distributed *input.DistributedDataset
	iterator    *feed.Iterator
}

var _ eager.StepIterator = (*InputIterator)(nil)

// MakeDatasetIterator distributes a dataset over the replicas and returns an initialized iterator.
// The dataset must be batched with the global batch size. It is TensorFlow's make_dataset_iterator.
// Errors are the errors of [input.Distribute].
//
// Deprecated: use [input.Distribute] and [feed.Iterate].
func (s *Strategy) MakeDatasetIterator(ctx context.Context, ds input.Dataset) (*InputIterator, error) {
	return s.iterator(ctx, func(opts input.Options) (*input.DistributedDataset,
		error) {
		return input.Distribute(ds, opts)
	})
}

// MakeInputFnIterator calls fn once for this process and returns an initialized iterator. It is
// TensorFlow's make_input_fn_iterator. In each step, each replica of the process receives one
// element of fn's dataset. A mode other than input.PerWorker is a ValueError.
//
// Deprecated: use [input.FromFunction] and [feed.Iterate].
func (s *Strategy) MakeInputFnIterator(ctx context.Context, fn func(input.Context) (input.Dataset, error),
	mode input.ReplicationMode) (*InputIterator, error) {
	if mode != input.PerWorker {
		return nil, &errkind.Fault{Op: "v1: make input function iterator",
			Reason: fmt.Sprintf("input replication mode not supported: %s",
				mode), Hint: "use input.PerWorker", Class: errkind.ValueError}
	}
	return s.iterator(ctx, func(opts input.Options) (*input.DistributedDataset,
		error) {
		return input.FromFunction(fn, opts)
	})
}

func (s *Strategy) iterator(ctx context.Context, distribute func(input.Options) (*input.DistributedDataset,
	error)) (*InputIterator, error) {
	if err := strategy.RefuseTracing(ctx, "make an iterator", insteadOfLoading); err != nil {
		return nil, err
	}
	// Scope returns an error outside of cross-replica context.
	if _, err := eager.Of(s.TPUStrategy).Scope(ctx); err != nil {
		return nil, err
	}
	opts, err := feed.InputOptions(s.TPUStrategy)
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

// insteadOfLoading is the hint of the error for a call during the trace of a compiled step.
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
	it.iterator = next
	return err
}

// GetNext returns the next element, with the structure of the dataset's elements and a
// *[strategy.PerReplica] at each leaf. At the end the error is io.EOF. A call in a replica's code
// is a ValueError.
func (it *InputIterator) GetNext(ctx context.Context) (any, error) {
	if err := strategy.RefuseTracing(ctx, "next", insteadOfLoading); err != nil {
		return nil, err
	}
	if it.iterator == nil {
		return nil, &strategy.Error{Op: "v1: next", Reason: "the iterator is closed or not initialized",
			Match: strategy.ErrClosed, Hint: "call Initialize"}
	}
	return it.iterator.Next(ctx)
}

// Next calls GetNext. RunStepsOnIterator requires this method.
func (it *InputIterator) Next(ctx context.Context) (any, error) { return it.GetNext(ctx) }

// Close ends the current pass. Initialize starts a new one.
func (it *InputIterator) Close() error {
	if it == nil || it.iterator == nil {
		return nil
	}
	iterator := it.iterator
	it.iterator = nil
	return iterator.Close()
}
