package contrib

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// PerDeviceDataset distributes the elements of a dataset to the towers. It is immutable and safe
// for concurrent use.
type PerDeviceDataset struct {
	d  *DistributionStrategy
	ds input.Dataset
}

// DistributeDataset distributes the elements of the dataset that fn returns, like TensorFlow's
// distribute_dataset. In each step, a tower receives one complete element, so batch the dataset
// with the batch size of one tower. If fewer elements than towers remain at the end, they are
// dropped.
//
// An invalid dataset is a ValueError, and a panic of fn is a *[errkind.PanicError]. With several
// processes the error matches errors.ErrUnsupported; use input.FromFunction and feed.Iterate
// instead.
func (d *DistributionStrategy) DistributeDataset(ctx context.Context,
	fn func() (input.Dataset, error)) (*PerDeviceDataset, error) {
	if err := d.requireCrossTower(ctx, "distribute dataset"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return nil, noDevicesError("distribute dataset", "read the dataset itself")
	}
	if d.strategy.NumProcesses() > 1 {
		return nil, fmt.Errorf("contrib: distribute dataset: over %d processes: %w; use input.FromFunction and feed.Iterate",
			d.strategy.NumProcesses(), errors.ErrUnsupported)
	}
	if fn == nil {
		return nil, newFault(errkind.ValueError, "distribute dataset", "give a function that returns a dataset",
			"no function")
	}
	ds, err := errkind.CatchPanic("contrib: the function", fn)
	if err == nil {
		err = ds.Err()
	}
	if err != nil {
		return nil, &errkind.Fault{Op: "contrib: distribute dataset", Reason: "the function returned no dataset", Err: err,
			Class: errkind.ValueError}
	}
	return &PerDeviceDataset{d, ds}, nil
}

// MakeOneShotIterator starts a pass over the dataset. It is TensorFlow's make_one_shot_iterator.
func (p *PerDeviceDataset) MakeOneShotIterator(ctx context.Context) (*Iterator, error) {
	it := p.MakeInitializableIterator()
	return it, it.Initialize(ctx)
}

// MakeInitializableIterator returns an iterator that starts a pass at each call of Initialize. It
// is TensorFlow's make_initializable_iterator.
func (p *PerDeviceDataset) MakeInitializableIterator() *Iterator {
	return &Iterator{d: p.d, ds: p.ds}
}

// Iterator reads one or more passes over a PerDeviceDataset. It is not safe for concurrent use.
type Iterator struct {
	d          *DistributionStrategy
	ds         input.Dataset
	iterator   input.Iterator
	epoch      uint64 // epoch of the next pass to open
	index      int64
	isFinished bool
}

// Initialize starts a pass from the beginning of the dataset.
func (it *Iterator) Initialize(ctx context.Context) error {
	if err := it.d.refuseTracing(ctx, "initialize"); err != nil {
		return err
	}
	if err := it.Close(); err != nil {
		return err
	}
	pass, err := it.ds.OpenAt(ctx, input.Pass{Epoch: it.epoch}, input.State{})
	if err != nil {
		return err
	}
	it.iterator, it.index, it.isFinished = pass, 0, false
	it.epoch++ // a shuffle has another order in each pass
	return nil
}

// GetNext returns one element for each tower, like TensorFlow's get_next. The result has the
// structure of the dataset's elements, with a [PerDevice] at each leaf, which the caller must
// close. If fewer elements than towers remain, the error is io.EOF. Before Initialize, the error is
// a RuntimeError.
func (it *Iterator) GetNext(ctx context.Context) (any, error) {
	if err := it.d.requireCrossTower(ctx, "next"); err != nil {
		return nil, err
	}
	if it.iterator == nil {
		return nil, newFault(errkind.RuntimeError, "next", "call Initialize", "the iterator is not initialized")
	}
	if it.isFinished {
		return nil, io.EOF
	}
	step := input.Step{Index: it.index}
	for range it.d.NumTowers() {
		e, err := it.iterator.Next(ctx)
		if errors.Is(err, io.EOF) {
			it.isFinished = true
		}
		if err != nil {
			return nil, err
		}
		step.Replicas = append(step.Replicas, e)
		step.HasData = append(step.HasData, true)
	}
	it.index++
	inner, err := feed.CopyToDevices(ctx, it.d.strategy, step)
	if err != nil {
		return nil, err
	}
	return it.d.wrapValues("next", inner)
}

// Close ends the current pass. Initialize starts a new one.
func (it *Iterator) Close() error {
	if it == nil || it.iterator == nil {
		return nil
	}
	pass := it.iterator
	it.iterator = nil
	return pass.Close()
}
