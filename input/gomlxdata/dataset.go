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

// Options describes a GoMLX dataset. The zero value means batches of unknown size and number.
type Options struct {
	Spec      input.Spec // spec of the elements that FromBatch returns; zero: unknown
	Count     int        // number of batches per pass; 0 is unknown, a negative number is infinite
	BatchSize int        // number of rows of a full batch; 0 is unknown
	// IgnoreSpec discards the Spec of GoMLX batches. If it is false, a batch with a Spec is an
	// error, because an Element has no field for the Spec, which selects the program for a batch.
	IgnoreSpec bool
}

// FromTrain returns a dataset of the batches of a GoMLX dataset, converted by [FromBatch]. Every
// pass and every restore calls ds.Iter again, so ds must yield the same batches in the same order
// each time. Use [input.Dataset.Shuffle] to shuffle. The tensors of each batch are copied, and the
// batch is finalized.
func FromTrain(ds train.Dataset, opts Options) input.Dataset {
	open := func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for batch, err := range ds.Iter() {
				var e input.Element
				if err == nil {
					e, err = convertBatch(batch, opts)
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
	return input.FromSeq(open, input.SeqOptions{Spec: opts.Spec, Count: opts.Count,
		BatchSize: cmp.Or(opts.BatchSize, input.Unknown)})
}

func convertBatch(batch train.Batch, opts Options) (input.Element, error) {
	var e input.Element
	var err error
	if batch.Spec != nil && !opts.IgnoreSpec {
		err = &errkind.Fault{Op: "gomlxdata: convert batch",
			Reason: fmt.Sprintf("it has the Spec %v, for which elements have no place", batch.Spec),
			Hint:   "drop it with Options.IgnoreSpec, or make one dataset for each Spec", Class: errkind.ValueError}
	} else {
		e, err = FromBatch(batch)
	}
	return e, errors.Join(err, batch.Finalize())
}

// FromBatch copies a batch to an element, which is a tuple of two tuples: the inputs and the
// labels. The caller keeps the ownership of the batch.
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

func fromTensors(role string, list []*tensors.Tensor) (input.Element, error) {
	out := make([]input.Element, len(list))
	for i, t := range list {
		x, err := FromTensor(t)
		if err != nil {
			return input.Element{}, &errkind.Fault{Op: "gomlxdata: convert batch", Subject: fmt.Sprintf("%s %d", role, i),
				Err: err}
		}
		out[i] = input.Leaf(x)
	}
	return input.Tuple(out...), nil
}

// ToBatch copies an element to a batch, which the caller owns. If the element is a tuple with two
// members, the leaves of the first member become the inputs and the leaves of the second become the
// labels. Otherwise all leaves become inputs.
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
			return nil, errors.Join(&errkind.Fault{Op: "gomlxdata: convert element",
				Subject: fmt.Sprintf("component %q", e.Paths()[i]), Err: err}, train.Batch{Inputs: out}.Finalize())
		}
		out = append(out, t)
	}
	return out, nil
}

// ToTrain returns a GoMLX dataset of the elements of ds, converted by [ToBatch]. Each call of Iter
// starts a pass with the next epoch, so a Shuffle has another order each time. The iteration stops
// at the first error. The dataset is not safe for concurrent use.
func ToTrain(ctx context.Context, name string, ds input.Dataset) train.Dataset {
	return &trainDataset{ctx: ctx, name: name, ds: ds}
}

type trainDataset struct {
	ctx   context.Context // GoMLX's Iter has no context parameter
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
