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

// PerDeviceDataset deals the elements of a dataset to the towers. It is immutable and safe for
// concurrent use.
type PerDeviceDataset struct {
	d  *DistributionStrategy
	ds input.Dataset
}

// DistributeDataset deals the elements of the dataset that fn returns to the towers, as
// TensorFlow's distribute_dataset does: each step gives a tower one element, whole. Batch a dataset
// for one tower to train on it. Elements at the end that do not suffice for all towers are dropped.
//
// An invalid dataset is an error of kind ValueError, a panic of fn a *[errkind.PanicError]. With
// several processes the error matches errors.ErrUnsupported: use input.FromFunction and
// feed.Iterate.
func (d *DistributionStrategy) DistributeDataset(ctx context.Context, fn func() (input.Dataset, error)) (*PerDeviceDataset, error) {
	if err := d.requireCross(ctx, "distribute dataset"); err != nil {
		return nil, err
	}
	if d == byDefault {
		return nil, noDevices("distribute dataset", "read the dataset itself")
	}
	if d.strategy.NumProcesses() > 1 {
		return nil, fmt.Errorf("contrib: distribute dataset: over %d processes: %w; use input.FromFunction and feed.Iterate", d.strategy.NumProcesses(), errors.ErrUnsupported)
	}
	if fn == nil {
		return nil, fault(errkind.ValueError, "distribute dataset", "give a function that returns a dataset", "no function")
	}
	ds, err := errkind.Guard("contrib: the function", fn)
	if err == nil {
		err = ds.Err()
	}
	if err != nil {
		return nil, &errkind.Fault{Op: "contrib: distribute dataset", Reason: "the function returned no dataset", Err: err, Class: errkind.ValueError}
	}
	return &PerDeviceDataset{d, ds}, nil
}

// MakeOneShotIterator starts a pass over the dataset: TensorFlow's make_one_shot_iterator.
func (p *PerDeviceDataset) MakeOneShotIterator(ctx context.Context) (*Iterator, error) {
	it := p.MakeInitializableIterator()
	return it, it.Initialize(ctx)
}

// MakeInitializableIterator returns an iterator that starts a pass with each Initialize:
// TensorFlow's make_initializable_iterator.
func (p *PerDeviceDataset) MakeInitializableIterator() *Iterator {
	return &Iterator{d: p.d, ds: p.ds}
}

// Iterator is a pass over a PerDeviceDataset. One goroutine uses it at a time.
type Iterator struct {
	d       *DistributionStrategy
	ds      input.Dataset
	pass    input.Iterator
	epoch   uint64 // of the pass to open
	index   int64
	expired bool
}

// Initialize starts a pass from the beginning of the dataset.
func (it *Iterator) Initialize(ctx context.Context) error {
	if err := it.d.untraced(ctx, "initialize"); err != nil {
		return err
	}
	if err := it.Close(); err != nil {
		return err
	}
	pass, err := it.ds.OpenAt(ctx, input.Pass{Epoch: it.epoch}, input.State{})
	if err != nil {
		return err
	}
	it.pass, it.index, it.expired = pass, 0, false
	it.epoch++ // a shuffle has another order in each pass
	return nil
}

// GetNext returns an element for each tower, as TensorFlow's get_next does: a nest like the
// dataset's with a [PerDevice] at each leaf, which the caller closes. The error is io.EOF at the
// end, and where fewer elements than towers are left. Before Initialize the error is of kind
// RuntimeError.
func (it *Iterator) GetNext(ctx context.Context) (any, error) {
	if err := it.d.requireCross(ctx, "next"); err != nil {
		return nil, err
	}
	if it.pass == nil {
		return nil, fault(errkind.RuntimeError, "next", "call Initialize", "the iterator is not initialized")
	}
	if it.expired {
		return nil, io.EOF
	}
	step := input.Step{Index: it.index}
	for range it.d.NumTowers() {
		e, err := it.pass.Next(ctx)
		if errors.Is(err, io.EOF) {
			it.expired = true
		}
		if err != nil {
			return nil, err
		}
		step.Replicas = append(step.Replicas, e)
		step.Real = append(step.Real, true)
	}
	it.index++
	inner, err := feed.Inputs(ctx, it.d.strategy, step)
	if err != nil {
		return nil, err
	}
	return it.d.wrap("next", inner)
}

// Close releases the input. Initialize opens it again.
func (it *Iterator) Close() error {
	if it == nil || it.pass == nil {
		return nil
	}
	pass := it.pass
	it.pass = nil
	return pass.Close()
}
