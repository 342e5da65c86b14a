package gomlxdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// Options describes a GoMLX dataset. The zero value describes batches of unknown size and number.
type Options struct {
	Spec      input.Spec // of the elements, see FromBatch; zero: unknown
	Count     int        // batches in a pass; 0 is unknown, a negative number is infinite
	BatchSize int        // rows of a full batch; 0 is unknown
	// IgnoreSpec drops the Spec that GoMLX batches may carry. Without it, a batch with a Spec is an
	// error: a Spec selects another program for the batch, and elements have no place for it.
	IgnoreSpec bool
}

// FromTrain returns a dataset of the batches of a GoMLX dataset, converted by [FromBatch]. Every
// pass and every restore of a position iterates over ds anew, so ds must yield the same batches
// each time: shuffle with input's Shuffle. FromTrain copies the tensors of each batch and then
// frees the batch, as its owner has to.
func FromTrain(ds train.Dataset, opts Options) input.Dataset {
	open := func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for batch, err := range ds.Iter() {
				var e input.Element
				if err == nil {
					e, err = take(batch, opts)
				}
				if err != nil {
					err = &errkind.Fault{Op: "gomlxdata: dataset", Subject: ds.Name(), Err: err}
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
	return input.FromSeq(open, input.SeqOptions{Spec: opts.Spec, Count: opts.Count, BatchSize: cmp.Or(opts.BatchSize, input.Unknown)})
}

// take converts a batch and frees it.
func take(batch train.Batch, opts Options) (input.Element, error) {
	var e input.Element
	var err error
	if batch.Spec != nil && !opts.IgnoreSpec {
		err = &errkind.Fault{Op: "gomlxdata: convert batch", Reason: fmt.Sprintf("it has the Spec %v, for which elements have no place", batch.Spec),
			Hint: "drop it with Options.IgnoreSpec, or make one dataset for each Spec", Class: errkind.ValueError}
	} else {
		e, err = FromBatch(batch)
	}
	return e, errors.Join(err, batch.Finalize())
}

// FromBatch copies a batch to an element: a tuple of the tuple of inputs and the tuple of labels.
// The caller still owns the batch.
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
			return input.Element{}, &errkind.Fault{Op: "gomlxdata: convert batch", Subject: fmt.Sprintf("%s %d", what, i), Err: err}
		}
		out[i] = input.Leaf(x)
	}
	return input.Tuple(out...), nil
}

// ToBatch copies an element to a batch, which the caller owns. The leaves of a tuple's first member
// become the inputs and those of its second the labels, if the tuple has two members. The leaves of
// any other element all become inputs.
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
			return nil, errors.Join(&errkind.Fault{Op: "gomlxdata: convert element", Subject: fmt.Sprintf("component %q", e.Paths()[i]), Err: err}, train.Batch{Inputs: out}.Finalize())
		}
		out = append(out, t)
	}
	return out, nil
}

// ToTrain returns a GoMLX dataset of the elements of ds, converted by [ToBatch]. Each Iter is a
// pass of its own with the next epoch, so that a Shuffle has another order each time. The iteration
// ends at the first error. One goroutine uses the dataset at a time.
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
