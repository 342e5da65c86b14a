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

// FromDataset distributes a dataset of global batches over the strategy's replicas, with the
// automatic policy, and feeds it once. For other rules, and for batches that are split over the
// logical devices, call [DistributeAhead] and [New].
//
// A second feed of the same dataset has the same order, shuffled or not. For several epochs repeat
// the dataset after its Shuffle, which shuffles each epoch anew, or call [DistributeAhead] with
// another Epoch for each, and New.
func FromDataset(ctx context.Context, s *strategy.TPUStrategy, ds input.Dataset, opts Options) (*Feed, error) {
	if err := strategy.RefuseTracing(ctx, "feed", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, nothing("no strategy")
	}
	d, err := DistributeAhead(s, ds, DistributeOptions{}, opts.EndTogether)
	if err != nil {
		return nil, err
	}
	return New(ctx, s, d, opts)
}

// FromTrain feeds a GoMLX dataset of global batches. A batch's components are its inputs, then its
// labels. The tensors are copied and freed.
func FromTrain(ctx context.Context, s *strategy.TPUStrategy, ds train.Dataset, data gomlxdata.Options, opts Options) (*Feed, error) {
	return FromDataset(ctx, s, gomlxdata.FromTrain(ds, data), opts)
}

// FromSeq feeds a Go iterator of global batches. open starts the iterator from the beginning, for
// each pass. data says what is known of the elements; a BatchSize of 0 means that it is not known.
// The iterator's context ends with the feed, so that an iterator that waits for data can give up.
func FromSeq(ctx context.Context, s *strategy.TPUStrategy, open func(ctx context.Context) iter.Seq2[input.Element, error], data input.SeqOptions, opts Options) (*Feed, error) {
	if err := strategy.RefuseTracing(ctx, "feed", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if s == nil || open == nil {
		return nil, nothing("no strategy, or no iterator")
	}
	if data.BatchSize == 0 {
		data.BatchSize = input.Unknown
	}
	ctx, cancel := context.WithCancelCause(ctx)
	pass := func(inner context.Context, _ input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			// The pass ends when it is closed, or with the feed.
			inner, end := context.WithCancelCause(inner)
			defer end(nil)
			defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
			open(inner)(yield)
		}
	}
	d, err := DistributeAhead(s, input.FromSeq(pass, data), DistributeOptions{}, opts.EndTogether)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return start(ctx, cancel, s, d, opts)
}

// ErrVote is matched by the error for input of which the processes may run out at different steps.
// The processes would have to vote on each step, which is a launch on all devices; a feed, which
// runs ahead, would make it at another point between the steps' launches on each process.
var ErrVote = errkind.New(errkind.NotImplementedError, "feed: processes that may run out of data at different steps cannot be fed ahead")

func noVote(context.Context, bool) (bool, error) {
	return false, &errkind.Fault{Match: ErrVote, Hint: "repeat the dataset without end and count the steps, set EndTogether if they end together, or keep the data in memory"}
}

// alone is the vote where it is known beforehand.
func alone(_ context.Context, mine bool) (bool, error) { return mine, nil }
