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

// Data is a source of training or evaluation batches for all replicas. Create it with [Dataset],
// [Distributed], [Feed] or [Batches]. Several runs can use the same Data unless its constructor
// documents otherwise.
type Data struct {
	open func(ctx context.Context, p openOptions) (source, error)
	// singlePass reports that the data can be read in one pass only.
	singlePass bool
}

// openOptions specifies one pass over the data.
type openOptions struct {
	strategy *strategy.TPUStrategy
	// arguments are the annotations of the step's arguments, and start is the position of the first
	// batch.
	arguments []logical.Annotation
	start     position
	// partial is the treatment of an incomplete batch if the caller gave no feed options.
	partial feed.Partial
}

type position struct {
	// Epoch is the number of the pass, from 0, and Batches is the number of batches of this pass that
	// the run has used.
	Epoch   int64 `json:"pass"`
	Batches int64 `json:"taken"`
	// Input is the position within the pass, if the data has one.
	Input input.State `json:"input,omitzero"`
}

// source reads one pass over the data.
type source interface {
	// next returns the arguments of the next step and their number of rows. The arguments are valid
	// until the next call. The error is io.EOF at the end.
	next(ctx context.Context) (args []any, rows int, err error)
	// state returns the position after the last batch that next returned.
	state() input.State
	// cardinality returns the number of batches of a pass, if it is known.
	cardinality() input.Cardinality
	close() error
}

// Dataset returns data that reads a dataset of global batches. The run distributes the dataset over
// the replicas with the policy input.Auto. It copies batches to the devices ahead of the steps,
// sharded over the logical devices as train.Options.Arguments specifies. opts configure the feed;
// feed.Options.Start must not be set. Each epoch is another pass over the dataset, and a Shuffle
// yields another order in each pass.
//
// Checkpoints contain the position in the dataset. A resumed run continues with the next batch, so
// each element is used once, even if the number of processes or replicas has changed. See
// input.DistributedDataset.OpenAt.
func Dataset(ds input.Dataset, opts ...feed.Options) Data {
	return Data{open: func(ctx context.Context, p openOptions) (source, error) {
		d, err := feed.DistributeAhead(p.strategy, ds, feed.DistributeOptions{Epoch: uint64(p.start.Epoch),
			Arguments: p.arguments}, len(opts) > 0 && opts[0].EndsTogether)
		if err != nil {
			return nil, err
		}
		return newFeedSource(ctx, p, d, opts)
	}}
}

// Distributed returns data that reads a dataset which the caller has distributed, for example with
// another policy ([feed.DistributeAhead]). Otherwise it is like [Dataset]. Use the result for one
// run only, because the dataset counts its passes.
func Distributed(d *input.DistributedDataset, opts ...feed.Options) Data {
	return Data{open: func(ctx context.Context, p openOptions) (source, error) {
		return newFeedSource(ctx, p, d, opts)
	}}
}

// Feed returns data that reads the remaining batches of a feed in one pass. The caller closes the
// feed. To resume a run, open its feed at the position of the checkpoint; see [LatestSnapshot].
func Feed(f *feed.Feed) Data {
	return Data{singlePass: true, open: func(_ context.Context, p openOptions) (source, error) {
		if f == nil {
			return nil, optionError("data", "give the feed that feed.New returned", "no feed: a nil pointer")
		}
		if !p.start.Input.IsZero() || p.start.Batches > 0 {
			if !input.SameStep(f.State(), p.start.Input) {
				return nil, &errkind.Fault{Op: "fit: feed", Reason: "it is at another position than the checkpoint",
					Match: input.ErrState,
					Hint:  "open it with feed.Options.Start as Saved returns it, or give the dataset by Dataset"}
			}
		}
		return &feedSource{feed: f}, nil
	}}
}

// Batches returns data that reads an iterator. Each element contains the arguments of one step:
// tensors or Go slices of the global batch, or values of the strategy. Each pass calls batches
// again. A resumed run reads and drops the batches that were already used. Therefore batches must
// yield the same global batches each time, even if the number of processes or replicas has changed.
func Batches(batches iter.Seq2[[]any, error]) Data {
	return Data{open: func(ctx context.Context, from openOptions) (source, error) {
		if batches == nil {
			return nil, optionError("data", "give a function that yields them", "no batches: a nil function")
		}
		p := &batchSource{replicas: from.strategy.NumReplicasInSync()}
		p.pull, p.stop = iter.Pull2(batches)
		for range from.start.Batches {
			if err := ctx.Err(); err != nil {
				return nil, p.closeWith(err)
			}
			if _, _, err := p.next(ctx); err == io.EOF {
				return nil, p.closeWith(&errkind.Fault{Op: "fit: batches", Reason: "there are fewer than the run has taken",
					Match: input.ErrState,
					Hint:  "give the batches that the run began with"})
			} else if err != nil {
				return nil, p.closeWith(err)
			}
		}
		return p, nil
	}}
}

type feedSource struct {
	feed         *feed.Feed
	ownsFeed     bool
	size         input.Cardinality
	args         []any
	replicaRatio int // ratio of all replicas to this process's replicas
}

func newFeedSource(ctx context.Context, p openOptions, d *input.DistributedDataset, opts []feed.Options) (source,
	error) {
	o, err := singleOption("data", opts)
	if err != nil {
		return nil, err
	}
	if len(opts) == 0 {
		o.Partial = p.partial
	}
	if !o.Start.IsZero() {
		return nil, optionError("data",
			"remove it: a run starts at the beginning of the data or at the position of its checkpoint",
			"feed.Options.Start is set")
	}
	o.Start = p.start.Input
	f, err := feed.New(ctx, p.strategy, d, o)
	if err != nil {
		return nil, err
	}
	n := &feedSource{feed: f, ownsFeed: true, replicaRatio: 1}
	if d != nil {
		n.size = d.Cardinality()
		if local := d.LocalReplicas(); local > 0 {
			n.replicaRatio = p.strategy.NumReplicasInSync() / local
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
	return f.args, rows * max(f.replicaRatio, 1), nil
}

func (f *feedSource) state() input.State             { return f.feed.State() }
func (f *feedSource) cardinality() input.Cardinality { return f.size }

func (f *feedSource) close() error {
	if !f.ownsFeed {
		return nil
	}
	return f.feed.Close()
}

type batchSource struct {
	pull     func() ([]any, error, bool)
	stop     func()
	replicas int
	lastArg  any // argument that rows belongs to
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
	return args, p.countRows(args), nil
}

// countRows returns the number of rows of the first argument over all replicas, or 0 if it has no
// rows.
func (p *batchSource) countRows(args []any) int {
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
		if p.lastArg != x {
			p.lastArg, p.rows = x, 0
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

func (p *batchSource) state() input.State             { return input.State{} }
func (p *batchSource) cardinality() input.Cardinality { return input.UnknownCardinality }

// closeWith closes the source, ignoring its error, and returns err.
func (p *batchSource) closeWith(err error) error {
	_ = p.close()
	return err
}

func (p *batchSource) close() (err error) {
	defer errkind.Recover("fit: it", &err)
	p.stop()
	return nil
}
