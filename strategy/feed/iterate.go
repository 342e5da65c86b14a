package feed

import (
	"context"
	"errors"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Iterator copies distributed input to the devices when Next is called. A [Feed], in contrast,
// copies batches ahead of time. Only one goroutine at a time may use an Iterator.
type Iterator struct {
	strategy  *strategy.TPUStrategy
	steps     *input.Steps
	arguments []logical.Annotation
}

// Iterate opens the next pass of distributed input, like TensorFlow's iteration over a
// tf.distribute.DistributedDataset. The caller must close the iterator. As in TensorFlow, a
// shuffled dataset has a different order in each pass by default.
//
// With several processes, all must open the same number of passes, and all batches must have one
// shape: batch with drop remainder, or pad with a [Feed]. If the replicas of a process have
// different numbers of rows, Next returns an error on that process, and does not notify the other
// processes.
func Iterate(ctx context.Context, s *strategy.TPUStrategy, d *input.DistributedDataset) (*Iterator, error) {
	if err := engine.Internal(s).CheckEager(ctx, "iterate", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	if numLocal := len(s.LocalReplicas()); d.LocalReplicas() != numLocal {
		return nil, fault.New(errkind.ValueError, "iterate", "distribute the dataset with feed.InputOptions",
			"input for %d replicas, of which %d are here", d.LocalReplicas(), numLocal)
	}
	steps, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	arguments, _ := d.Layout().([]logical.Annotation)
	return &Iterator{strategy: s, steps: steps, arguments: arguments}, nil
}

// Next returns the input of the next step, or io.EOF. It is a *[strategy.PerReplica] for a dataset
// of single tensors, a []any of such values for tuples, or a map[string]any for dictionaries. Pass
// the members to a step as separate arguments. The caller must close the values. In replica code
// Next returns an error of kind ValueError.
func (it *Iterator) Next(ctx context.Context) (any, error) {
	if m, ok := mode.FromContext(ctx); ok && m.Replica {
		return nil, fault.New(errkind.ValueError, "next", "take the input before the run and pass it as an argument",
			"called in a replica's code")
	}
	if err := strategy.RefuseTracing(ctx, "next", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	step, err := it.steps.Next(ctx)
	if err != nil {
		return nil, err
	}
	return CopyToDevices(ctx, it.strategy, step, it.arguments...)
}

// Close releases the input, but not the values that Next returned. A second Close does nothing.
func (it *Iterator) Close() error {
	if it == nil {
		return nil
	}
	return it.steps.Close()
}

// CopyToDevices copies a step of distributed input to the devices. It returns a nest with the
// structure of the dataset's elements: a []any for a tuple, a map[string]any for a dictionary, and
// a *[strategy.PerReplica] for a leaf, whose replicas may have different shapes. Text is not copied
// and becomes a *[strategy.Objects]. With several processes, each passes the input of its own
// replicas, and all must have one shape. [DistributeOptions].Arguments describes arguments.
func CopyToDevices(ctx context.Context, s *strategy.TPUStrategy, step input.Step,
	arguments ...logical.Annotation) (nest any, err error) {
	if err := strategy.RefuseTracing(ctx, "inputs", fault.InsteadOfLoading); err != nil {
		return nil, err
	}
	first := step.Replicas[0]
	paths, columns := first.Paths(), make([][]any, len(first.Leaves()))
	for r, e := range step.Replicas {
		if !slices.Equal(e.Paths(), paths) {
			return nil, fault.New(errkind.AssertionError, "inputs", "give each replica an element of one structure",
				"the components %v of replica %d, %v of replica 0", e.Paths(), r, paths)
		}
		for leaf, t := range e.Leaves() {
			columns[leaf] = append(columns[leaf], t)
		}
	}
	if len(arguments) > len(columns) {
		return nil, fault.New(errkind.ValueError, "inputs", "annotate an element's leaves in their order",
			"%d annotations for the %d leaves of an element", len(arguments), len(columns))
	}
	values := make([]any, len(columns))
	defer func() {
		if err != nil {
			err = errors.Join(err, closeValues(values))
		}
	}()
	for leaf, column := range columns {
		if values[leaf], err = copyLeaf(ctx, s, column, annotationOf(leaf, arguments)); err != nil {
			return nil, fault.Wrap("inputs"+paths[leaf], err, "")
		}
	}
	next := 0
	return buildNest(first, values, &next), nil
}

// copyLeaf copies one tensor of the dataset's elements, for all replicas, to the devices.
func copyLeaf(ctx context.Context, s *strategy.TPUStrategy, column []any, a logical.Annotation) (any, error) {
	if _, text := column[0].(input.Tensor).Flat().([]string); text {
		if a.Kind() != logical.KindNone {
			return nil, fault.New(errkind.TypeError, "inputs", "leave its annotation out",
				"text, which stays on the host, annotated %s", a)
		}
		all := make([]any, len(column))
		for r, t := range column {
			all[r] = t.(input.Tensor).Flat()
		}
		return strategy.NewObjects(all...), nil
	}
	return engine.Internal(s).NewBatch(ctx, column, a)
}

// buildNest arranges values in the structure of element: slices for tuples and maps for
// dictionaries. It uses the values from position *index on, and advances *index.
func buildNest(element input.Element, values []any, index *int) any {
	switch {
	case element.IsLeaf():
		*index++
		return values[*index-1]
	case element.Keys() != nil:
		m := map[string]any{}
		for _, key := range element.Keys() {
			member, _ := element.Get(key)
			m[key] = buildNest(member, values, index)
		}
		return m
	}
	list := make([]any, element.Len())
	for i := range list {
		list[i] = buildNest(element.At(i), values, index)
	}
	return list
}

func closeValues(values []any) error {
	var errs []error
	for _, x := range values {
		if v, ok := x.(*strategy.PerReplica); ok && v != nil {
			errs = append(errs, v.Close())
		}
	}
	return errors.Join(errs...)
}
