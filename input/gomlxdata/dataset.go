package gomlxdata

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/tpustrategy/tpustrategy/input"
)

// Options describes a GoMLX dataset. The zero value is a dataset of batches of unknown size and number.
type Options struct {
	Spec      input.Spec // of the elements, see FromBatch; zero: unknown
	Count     int        // batches in a pass; 0 is unknown, a negative number is infinite
	BatchSize int        // rows of a full batch; 0 is unknown
	// IgnoreSpec drops the Spec that GoMLX batches may carry. Without it such a batch is an error, because a Spec selects
	// another program for the batch and elements have no place for it.
	IgnoreSpec bool
}

// FromTrain makes a dataset of a GoMLX dataset that yields batches. Every pass iterates over it anew, and so does every
// restore of a position, so it has to yield the same batches each time: shuffle with input's Shuffle. The tensors are
// copied, and freed as the batches' owner has to.
func FromTrain(ds train.Dataset, opts Options) input.Dataset {
	size := opts.BatchSize
	if size == 0 {
		size = input.Unknown
	}
	open := func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for batch, err := range ds.Iter() {
				var e input.Element
				if err == nil {
					e, err = take(batch, opts)
				}
				if err != nil {
					err = fmt.Errorf("gomlxdata: dataset %s: %w", ds.Name(), err)
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
	return input.FromSeq(open, input.SeqOptions{Spec: opts.Spec, Count: opts.Count, BatchSize: size})
}

// take converts a batch and frees it.
func take(batch train.Batch, opts Options) (input.Element, error) {
	var e input.Element
	var err error
	if batch.Spec != nil && !opts.IgnoreSpec {
		err = fmt.Errorf("a batch has the Spec %v: drop it with IgnoreSpec, or make one dataset for each", batch.Spec)
	} else {
		e, err = FromBatch(batch)
	}
	return e, errors.Join(err, batch.Finalize())
}

// FromBatch copies a batch to an element: a tuple of the tuple of inputs and the tuple of labels.
func FromBatch(batch train.Batch) (input.Element, error) {
	inputs, err := fromTensors("input", batch.Inputs)
	if err != nil {
		return input.Element{}, err
	}
	labels, err := fromTensors("label", batch.Labels)
	if err != nil {
		return input.Element{}, err
	}
	return input.Tuple(inputs, labels), nil
}

func fromTensors(what string, list []*tensors.Tensor) (input.Element, error) {
	out := make([]input.Element, len(list))
	for i, t := range list {
		x, err := FromTensor(t)
		if err != nil {
			return input.Element{}, fmt.Errorf("%s %d: %w", what, i, err)
		}
		out[i] = input.Leaf(x)
	}
	return input.Tuple(out...), nil
}

// ToBatch copies an element to a batch, which the caller owns: the first member of a tuple of two is the inputs, the
// second the labels, each with its leaves in order. Any other element is all inputs.
func ToBatch(e input.Element) (train.Batch, error) {
	inputs, labels := e, input.Element{}
	if !e.IsLeaf() && e.Keys() == nil && e.Len() == 2 {
		inputs, labels = e.At(0), e.At(1)
	}
	var batch train.Batch
	var err error
	if batch.Inputs, err = toTensors(inputs); err != nil {
		return train.Batch{}, err
	}
	if batch.Labels, err = toTensors(labels); err != nil {
		return train.Batch{}, errors.Join(err, batch.Finalize())
	}
	return batch, nil
}

func toTensors(e input.Element) ([]*tensors.Tensor, error) {
	var out []*tensors.Tensor
	for i, leaf := range e.Leaves() {
		t, err := ToTensor(leaf)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", e.Paths()[i], err), train.Batch{Inputs: out}.Finalize())
		}
		out = append(out, t)
	}
	return out, nil
}

// ToTrain makes a GoMLX dataset of batches of a dataset. Each Iter is a pass of its own with the next epoch, so that a
// Shuffle in it has another order each time. The iteration ends at the first error. One goroutine uses it at a time.
func ToTrain(ctx context.Context, name string, ds input.Dataset) train.Dataset {
	return &trainDataset{ctx: ctx, name: name, ds: ds}
}

type trainDataset struct {
	ctx   context.Context // GoMLX's interface has no place for one
	name  string
	ds    input.Dataset
	epoch uint64
}

func (d *trainDataset) Name() string { return d.name }

func (d *trainDataset) Iter() iter.Seq2[train.Batch, error] {
	epoch := d.epoch
	d.epoch++
	return func(yield func(train.Batch, error) bool) {
		for e, err := range d.ds.Pass(d.ctx, input.Pass{Epoch: epoch}) {
			var batch train.Batch
			if err == nil {
				batch, err = ToBatch(e)
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}
