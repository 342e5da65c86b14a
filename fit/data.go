package fit

import (
	"context"
	"io"
	"iter"
	"reflect"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// Data is what a run trains or evaluates on: batches for all replicas. [Dataset], [Distributed],
// [Feed] and [Batches] make one. A Data is a value that can be used for several runs, unless it
// says otherwise.
type Data struct {
	open func(ctx context.Context, p pass) (source, error)
	// once says that there is one pass.
	once bool
}

// pass says how a pass over data is opened.
type pass struct {
	strategy *strategy.TPUStrategy
	// arguments are the step's, and at is where the pass begins.
	arguments []logical.Annotation
	at        position
	// partial is what a feed does with a short batch whose options say nothing.
	partial feed.Partial
}

// position is where a run is in its data.
type position struct {
	// Pass is the number of the pass, from 0, and Taken the number of batches that were taken of
	// it.
	Pass  int64 `json:"pass"`
	Taken int64 `json:"taken"`
	// Input is the position within the pass, where the data has one.
	Input input.State `json:"input,omitzero"`
}

// source is one pass over data.
type source interface {
	// next returns the next batch as a step's arguments, which are the source's, and the number of
	// its rows. The error is io.EOF at the end.
	next(ctx context.Context) (args []any, rows int, err error)
	// state is the position after the batch that next returned last.
	state() input.State
	// steps is the number of batches of a pass, as far as it is known.
	steps() input.Cardinality
	close() error
}

// Dataset is a dataset of global batches. The run distributes it over the strategy's replicas, with
// the automatic policy, and feeds the batches ahead of the steps, split over the logical devices as
// train.Options.Arguments says; opts are those of the feed, but for From. Each epoch is another pass: a Shuffle has another order in each.
//
// The position in the dataset is part of a checkpoint, so a run that resumes goes on with the very
// next batch, on any number of processes and replicas: each element is used once. Until its pass
// ends the processes share out the pipelines that the run had; see input.DistributedDataset.OpenAt.
func Dataset(ds input.Dataset, opts ...feed.Options) Data {
	return Data{open: func(ctx context.Context, p pass) (source, error) {
		d, err := feed.DistributeAhead(p.strategy, ds, feed.DistributeOptions{Epoch: uint64(p.at.Pass), Arguments: p.arguments}, len(opts) > 0 && opts[0].EndTogether)
		if err != nil {
			return nil, err
		}
		return newFeedSource(ctx, p, d, opts)
	}}
}

// Distributed is a dataset that the caller has distributed, by a rule, a policy or a split of its
// own ([feed.DistributeAhead]). It is fed as [Dataset] is. Use it for one run, as it counts its
// passes.
func Distributed(d *input.DistributedDataset, opts ...feed.Options) Data {
	return Data{open: func(ctx context.Context, p pass) (source, error) {
		return newFeedSource(ctx, p, d, opts)
	}}
}

// Feed is one pass over the rest of a feed, which stays the caller's to close. A run that resumes
// needs a feed that was opened at the position of the checkpoint: see [Saved].
func Feed(f *feed.Feed) Data {
	return Data{once: true, open: func(_ context.Context, p pass) (source, error) {
		if f == nil {
			return nil, option("data", "give the feed that feed.New returned", "no feed: a nil pointer")
		}
		if !p.at.Input.IsZero() || p.at.Taken > 0 {
			if !input.SameStep(f.State(), p.at.Input) {
				return nil, &errkind.Fault{Op: "fit: feed", Reason: "it is at another position than the checkpoint", Match: input.ErrState,
					Hint: "open it with feed.Options.From as Saved returns it, or give the dataset by Dataset"}
			}
		}
		return &feedSource{feed: f}, nil
	}}
}

// Batches is a sequence of batches, each as the arguments of a step: tensors or Go slices of the
// global batch, or values of the strategy. Each pass calls batches anew. A run that resumes reads
// and drops the batches that it has taken already, so batches must yield the same global batches
// each time, also where the number of processes or replicas has changed.
func Batches(batches iter.Seq2[[]any, error]) Data {
	return Data{open: func(ctx context.Context, from pass) (source, error) {
		if batches == nil {
			return nil, option("data", "give a function that yields them", "no batches: a nil function")
		}
		p := &batchSource{replicas: from.strategy.NumReplicasInSync()}
		p.pull, p.stop = iter.Pull2(batches)
		for range from.at.Taken {
			if err := ctx.Err(); err != nil {
				return nil, p.ended(err)
			}
			if _, _, err := p.next(ctx); err == io.EOF {
				return nil, p.ended(&errkind.Fault{Op: "fit: batches", Reason: "there are fewer than the run has taken", Match: input.ErrState,
					Hint: "give the batches that the run began with"})
			} else if err != nil {
				return nil, p.ended(err)
			}
		}
		return p, nil
	}}
}

// feedSource is a source that is a feed.
type feedSource struct {
	feed  *feed.Feed
	owned bool
	card  input.Cardinality
	args  []any
	scale int // of the rows of this process to those of all
}

func newFeedSource(ctx context.Context, p pass, d *input.DistributedDataset, opts []feed.Options) (source, error) {
	o, err := only("data", opts)
	if err != nil {
		return nil, err
	}
	if len(opts) == 0 {
		o.Partial = p.partial
	}
	if !o.From.IsZero() {
		return nil, option("data", "leave it out: a run begins at the beginning, or where its checkpoint says", "a feed's option From is set")
	}
	o.From = p.at.Input
	f, err := feed.New(ctx, p.strategy, d, o)
	if err != nil {
		return nil, err
	}
	n := &feedSource{feed: f, owned: true, scale: 1}
	if d != nil {
		n.card = d.Cardinality()
		if local := d.LocalReplicas(); local > 0 {
			n.scale = p.strategy.NumReplicasInSync() / local
		}
	}
	return n, nil
}

func (f *feedSource) next(ctx context.Context) ([]any, int, error) {
	batch, err := f.feed.Next(ctx)
	if err != nil {
		return nil, 0, err
	}
	f.args = f.args[:0]
	for _, v := range batch.Values {
		f.args = append(f.args, v)
	}
	if batch.Mask != nil {
		f.args = append(f.args, batch.Mask)
	}
	rows := 0
	for _, n := range batch.Rows {
		rows += n
	}
	return f.args, rows * max(f.scale, 1), nil
}

func (f *feedSource) state() input.State       { return f.feed.State() }
func (f *feedSource) steps() input.Cardinality { return f.card }

func (f *feedSource) close() error {
	if !f.owned {
		return nil
	}
	return f.feed.Close()
}

// batchSource is a source that is an iterator.
type batchSource struct {
	pull     func() ([]any, error, bool)
	stop     func()
	replicas int
	last     any // whose rows are known
	rows     int
}

func (p *batchSource) next(context.Context) (args []any, rows int, err error) {
	defer errkind.Recover("fit: it", &err)
	args, err, ok := p.pull()
	if !ok {
		return nil, 0, io.EOF
	}
	if err != nil {
		return nil, 0, err
	}
	return args, p.count(args), nil
}

// count returns the number of rows of a batch: of the first of its arguments.
func (p *batchSource) count(args []any) int {
	if len(args) == 0 {
		return 0
	}
	switch x := args[0].(type) {
	case *tensors.Tensor:
		if x == nil || x.Shape().Rank() == 0 {
			return 0
		}
		return x.Shape().Dimensions[0]
	case *strategy.PerReplica:
		if x == nil {
			return 0
		}
		if p.last != x {
			p.last, p.rows = x, 0
			if shape := x.Shape(); shape.Rank() > 0 {
				p.rows = shape.Dimensions[0] * p.replicas
			}
		}
		return p.rows
	default:
		if v := reflect.ValueOf(x); v.Kind() == reflect.Slice {
			return v.Len()
		}
		return 0
	}
}

func (p *batchSource) state() input.State       { return input.State{} }
func (p *batchSource) steps() input.Cardinality { return input.UnknownCardinality }

// ended closes the source after an error.
func (p *batchSource) ended(err error) error {
	_ = p.close()
	return err
}

func (p *batchSource) close() (err error) {
	defer errkind.Recover("fit: it", &err)
	p.stop()
	return nil
}
