package feed

import (
	"context"
	"iter"

	"github.com/gomlx/gomlx/ml/train"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// FromDataset distributes a dataset of global batches over the strategy's replicas with the
// automatic policy, and feeds it once. For other policies, and for batches that are split over the
// logical devices, call [DistributeAhead] and [New].
//
// A second feed of the same dataset has the same order, even if the dataset is shuffled. For
// several epochs with different orders, repeat the dataset after its Shuffle, or call
// [DistributeAhead] with a different Epoch for each.
func FromDataset(ctx context.Context, s *strategy.TPUStrategy, ds input.Dataset, opts Options) (*Feed, error) {
	if err := strategy.RefuseTracing(ctx, "feed", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, missingArgumentError("no strategy")
	}
	d, err := DistributeAhead(s, ds, DistributeOptions{}, opts.EndsTogether)
	if err != nil {
		return nil, err
	}
	return New(ctx, s, d, opts)
}

// FromTrain feeds a GoMLX dataset of global batches. The components of a batch are its inputs
// followed by its labels. The tensors are copied and freed.
func FromTrain(ctx context.Context, s *strategy.TPUStrategy, ds train.Dataset, data gomlxdata.Options,
	opts Options) (*Feed, error) {
	return FromDataset(ctx, s, gomlxdata.FromTrain(ds, data), opts)
}

// FromSeq feeds a Go iterator of global batches. open must start the iterator from the beginning;
// it is called for each pass. data describes the elements; BatchSize may be 0 if it is not known.
// The iterator's context is canceled when the feed ends, so that an iterator that waits for data
// can stop.
func FromSeq(ctx context.Context, s *strategy.TPUStrategy,
	open func(ctx context.Context) iter.Seq2[input.Element, error], data input.SeqOptions, opts Options) (*Feed, error) {
	if err := strategy.RefuseTracing(ctx, "feed", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if s == nil || open == nil {
		return nil, missingArgumentError("no strategy, or no iterator")
	}
	if data.BatchSize == 0 {
		data.BatchSize = input.Unknown
	}
	ctx, cancel := context.WithCancelCause(ctx)
	openPass := func(inner context.Context, _ input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			// The pass ends when it is closed or when the feed ends.
			inner, end := context.WithCancelCause(inner)
			defer end(nil)
			defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
			open(inner)(yield)
		}
	}
	d, err := DistributeAhead(s, input.FromSeq(openPass, data), DistributeOptions{}, opts.EndsTogether)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return start(ctx, cancel, s, d, opts)
}

// ErrVote reports input that may end at different steps on different processes. The processes would
// have to vote before each step, which is a launch on all devices, and a feed that runs ahead
// cannot launch its vote at the same position between the steps in all processes.
var ErrVote = errkind.New(errkind.NotImplementedError,
	"feed: processes that may run out of data at different steps cannot be fed ahead")

func refuseVote(context.Context, bool) (bool, error) {
	return false, &errkind.Fault{Match: ErrVote, Hint: "repeat the dataset without end and count the steps, set " +
		"EndsTogether if they end together, or keep the data in memory"}
}

// localVote replaces the vote on the end of the data if all processes run out of data at the same
// step. It does not communicate.
func localVote(_ context.Context, own bool) (bool, error) { return own, nil }
