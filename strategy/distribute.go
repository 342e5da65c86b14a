package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// DistributeOptions say how data is shared out. The zero value is automatic
// sharding and TensorFlow's rule for its case.
type DistributeOptions struct {
	// Policy is how files or elements are shared among hosts, Rule how batches are
	// cut among replicas.
	Policy input.Policy
	Rule   input.Rule
	// Epoch is the first pass to open; each further one is the next.
	Epoch uint64
	// Arguments say how a replica's part of each tensor is split over its logical
	// devices, in the order of an element's leaves (members of a tuple in order, of a
	// dictionary by ascending key); missing ones are whole on each. A part is copied
	// to the device that is to hold it, so that none holds the whole. One that does
	// not fit is an [*Error] that names the leaf and wraps a [*logical.Error], where
	// the batch is put on the devices.
	Arguments []logical.Annotation
}

func (s *TPUStrategy) inputOptions(o DistributeOptions) (input.Options, error) {
	opts, err := s.InputOptions()
	opts.Policy, opts.Rule, opts.Epoch = o.Policy, o.Rule, o.Epoch
	if len(o.Arguments) > 0 {
		opts.Layout = slices.Clone(o.Arguments)
	}
	return opts, err
}

// DistributeDataset shares the global batches of a dataset out among the replicas:
// TensorFlow's experimental_distribute_dataset. The dataset is batched with the global
// batch size, along dimension 0. It is input.Distribute with the strategy's
// [TPUStrategy.InputOptions], and has their errors. [TPUStrategy.Iterate] puts the
// batches on the devices, package feed ahead of the step.
func (s *TPUStrategy) DistributeDataset(ds input.Dataset, o DistributeOptions) (*input.Distributed, error) {
	opts, err := s.inputOptions(o)
	if err != nil {
		return nil, err
	}
	return input.Distribute(ds, opts)
}

// DistributeDatasetsFromFunction calls fn for this process's dataset of batches for
// single replicas, of which each replica takes the next: TensorFlow's
// experimental_distribute_datasets_from_function. It is input.FromFunction with the
// strategy's [TPUStrategy.InputOptions], and has their errors.
func (s *TPUStrategy) DistributeDatasetsFromFunction(fn func(input.Context) (input.Dataset, error), o DistributeOptions) (*input.Distributed, error) {
	opts, err := s.inputOptions(o)
	if err != nil {
		return nil, err
	}
	return input.FromFunction(fn, opts)
}

// Inputs puts a step of distributed input on the devices: a nest like the
// dataset's elements, tuples as []any and dictionaries as map[string]any, with a
// *[PerReplica] at each leaf, ragged where the replicas' shares differ. Text stays
// on the host, as *[Objects]. Of several processes each gives the inputs of its own
// replicas, all of one shape. Arguments are those of [DistributeOptions].
func (s *TPUStrategy) Inputs(ctx context.Context, step input.Step, arguments ...logical.Annotation) (any, error) {
	if err := untraced(ctx, "inputs", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	nests := make([]any, len(step.Replicas))
	for r, e := range step.Replicas {
		var err error
		if nests[r], err = hostNest(e); err != nil {
			return nil, fmt.Errorf("strategy: input of replica %d: %w", r, err)
		}
	}
	leaf := -1
	nest, err := nesting.Zip("inputs", nests, func(path string, leaves []any) (any, error) {
		leaf++
		v, err := s.inputLeaf(ctx, leaves, at(arguments, leaf))
		if err != nil {
			return nil, fmt.Errorf("strategy: inputs%s: %w", path, err)
		}
		return v, nil
	})
	if err == nil && leaf+1 < len(arguments) {
		err = fault.New(ValueError, "inputs", "annotate an element's leaves in their order", "%d annotations for the %d leaves of an element", len(arguments), leaf+1)
	}
	return nest, err
}

// inputLeaf puts one component of a step on the devices.
func (s *TPUStrategy) inputLeaf(ctx context.Context, leaves []any, a logical.Annotation) (any, error) {
	if _, text := leaves[0].([]string); text && a.Kind() != logical.None {
		return nil, fault.New(TypeError, "inputs", "leave its annotation out", "text, which stays on the host, annotated %s", a)
	}
	if s.hosts.several() {
		return s.LocalPerReplica(ctx, leaves, a)
	}
	if _, text := leaves[0].([]string); text {
		return NewObjects(leaves...), nil
	}
	all := make([]*tensors.Tensor, len(leaves))
	for r, x := range leaves {
		all[r] = x.(*tensors.Tensor)
	}
	return s.perReplicaOf(ctx, all, a)
}

// hostNest is an element with GoMLX tensors.
func hostNest(e input.Element) (any, error) {
	if e.IsLeaf() {
		x := e.Leaf()
		if text, ok := x.Flat().([]string); ok {
			return text, nil
		}
		dtype, ok := x.Kind().DType()
		if !ok {
			return nil, fmt.Errorf("a tensor of kind %s has no place on a device", x.Kind())
		}
		t := tensors.FromShape(shapes.Make(dtype, x.Dims()...))
		return t, t.MutableBytes(func(to []byte) { copy(to, x.Bytes()) })
	}
	if keys := e.Keys(); keys != nil {
		m := map[string]any{}
		for _, key := range keys {
			member, _ := e.Get(key)
			var err error
			if m[key], err = hostNest(member); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	list := make([]any, e.Len())
	for i := range list {
		var err error
		if list[i], err = hostNest(e.At(i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Iterator is distributed input on the devices. One goroutine uses it at a time.
type Iterator struct {
	strategy  *TPUStrategy
	steps     *input.Steps
	arguments []logical.Annotation
}

// Iterate opens the next pass of distributed input, from its beginning, as an iterator
// of values on the devices. Close it. A shuffle has another order in each pass, unless
// its options say otherwise, as in TensorFlow; of several processes each opens as many.
// Package feed does the same ahead of the step.
//
// With several processes all batches need one shape: batch with drop remainder, or pad
// with package feed. A process whose own shares of a short batch differ has an error from
// Next, of which the others learn nothing.
func (s *TPUStrategy) Iterate(ctx context.Context, d *input.Distributed) (*Iterator, error) {
	if err := s.requireEager(ctx, "iterate", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if d.LocalReplicas() != s.shares(true) {
		return nil, fault.New(ValueError, "iterate", "distribute the dataset by InputOptions", "input for %d replicas, of which %d are here", d.LocalReplicas(), s.shares(true))
	}
	steps, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	arguments, _ := d.Layout().([]logical.Annotation)
	return &Iterator{strategy: s, steps: steps, arguments: arguments}, nil
}

// Next returns the next step's input, or io.EOF: a *PerReplica for a dataset of
// single tensors, []any of them for tuples, map[string]any for dictionaries. Give
// the members to a step one by one. They are the caller's. It belongs outside the
// replicas' code: inside it is a ValueError.
func (it *Iterator) Next(ctx context.Context) (any, error) {
	if m, ok := modeOf(ctx); ok && m.replica {
		return nil, fault.New(ValueError, "next", "take the input before the run and pass it as an argument", "called in a replica's code")
	}
	if err := untraced(ctx, "next", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	step, err := it.steps.Next(ctx)
	if err != nil {
		return nil, err
	}
	return it.strategy.Inputs(ctx, step, it.arguments...)
}

// Close releases the input. What Next gave stays the caller's. A second Close does
// nothing.
func (it *Iterator) Close() error { return it.steps.Close() }
