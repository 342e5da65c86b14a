package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"tpustrategy/strategy/input"
)

// Inputs puts a step of distributed input on the devices: a nest like the
// dataset's elements, tuples as []any and dictionaries as map[string]any, with a
// *[PerReplica] at each leaf, ragged where the replicas' shares differ. Text stays
// on the host, as *[Objects].
func (s *TPUStrategy) Inputs(ctx context.Context, step input.Step) (any, error) {
	nests := make([]any, len(step.Replicas))
	for r, e := range step.Replicas {
		var err error
		if nests[r], err = hostNest(e); err != nil {
			return nil, fmt.Errorf("strategy: input of replica %d: %w", r, err)
		}
	}
	return s.regroup(ctx, "inputs", nests, true)
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

// StepIterator gives the inputs of steps, and io.EOF at the end.
type StepIterator interface {
	Next(ctx context.Context) (any, error)
}

// Iterator is distributed input on the devices. One goroutine uses it at a time.
type Iterator struct {
	strategy *TPUStrategy
	steps    *input.Steps
}

// Iterate opens distributed input as an iterator of values on the devices.
func (s *TPUStrategy) Iterate(ctx context.Context, d *input.Distributed) (*Iterator, error) {
	if err := s.requireCross(ctx, "iterate"); err != nil {
		return nil, err
	}
	if d.LocalReplicas() != s.replicas {
		return nil, fault(ValueError, "iterate", "distribute the dataset for this strategy", "input for %d replicas of %d", d.LocalReplicas(), s.replicas)
	}
	steps, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &Iterator{strategy: s, steps: steps}, nil
}

// Next returns the next step's input, or io.EOF. It belongs outside the replicas'
// code: inside it is a ValueError.
func (it *Iterator) Next(ctx context.Context) (any, error) {
	if m, ok := modeOf(ctx); ok && m.replica {
		return nil, fault(ValueError, "next", "take the input before the run and pass it as an argument", "called in a replica's code")
	}
	step, err := it.steps.Next(ctx)
	if err != nil {
		return nil, err
	}
	return it.strategy.Inputs(ctx, step)
}

// Close releases the input.
func (it *Iterator) Close() error { return it.steps.Close() }

// MultiStepContext collects the outputs of [Extended.RunStepsOnIterator].
type MultiStepContext struct {
	strategy  *TPUStrategy
	outputs   map[string]any
	reduceOps map[string]*ReduceOp
	others    map[string]any
}

// LastStepOutputs are the outputs of the last step so far, by name.
func (m *MultiStepContext) LastStepOutputs() map[string]any { return maps.Clone(m.outputs) }

// ReduceOps are the reductions of the outputs, nil for one that is not reduced.
func (m *MultiStepContext) ReduceOps() map[string]*ReduceOp { return maps.Clone(m.reduceOps) }

// NonTensorOutputs are the other outputs, by name.
func (m *MultiStepContext) NonTensorOutputs() map[string]any { return maps.Clone(m.others) }

// SetLastStepOutput sets an output of the step, reduced over the replicas by op if
// there is one. In a replica's code, whose context ctx then is, it joins the
// replicas and needs an op: an [*Error] of kind AssertionError otherwise.
func (m *MultiStepContext) SetLastStepOutput(ctx context.Context, name string, output any, op ...ReduceOp) error {
	if rc, ok := ReplicaContextOf(ctx); ok {
		if len(op) == 0 {
			return fault(AssertionError, "step output "+name, "give one, or return the output and set it outside", "a replica's output needs a reduction")
		}
		_, err := rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
			return nil, m.SetLastStepOutput(ctx, name, args[0], op...)
		}, output)
		return err
	}
	m.reduceOps[name] = nil
	if len(op) > 0 {
		reduced, err := m.strategy.ReduceNest(ctx, op[0], output)
		if err != nil {
			return err
		}
		output = reduced
		m.reduceOps[name] = &op[0]
	}
	m.outputs[name] = output
	return nil
}

// SetNonTensorOutput keeps an output that is no tensor: as it is, or, in a
// replica's code, what all replicas gave, see [TPUStrategy.LocalResultsOf].
func (m *MultiStepContext) SetNonTensorOutput(ctx context.Context, name string, output any) error {
	if rc, ok := ReplicaContextOf(ctx); ok {
		_, err := rc.MergeCall(func(_ context.Context, args ...any) (any, error) {
			results, err := m.strategy.LocalResultsOf(args[0])
			m.others[name] = results
			return nil, err
		}, output)
		return err
	}
	m.others[name] = output
	return nil
}

// RunStepsOnIterator calls fn for each of several steps, in cross-replica context,
// with the step's input: TensorFlow's experimental_run_steps_on_iterator. The
// context that it returns holds the outputs of the last step. initial are its
// outputs before the first step, and may be nil. Iterations 0 means 1. Input that
// ends early ends the steps, with io.ErrUnexpectedEOF if there was none.
func (e *Extended) RunStepsOnIterator(ctx context.Context, fn func(ctx context.Context, m *MultiStepContext, inputs any) error,
	it StepIterator, iterations int, initial map[string]any) (*MultiStepContext, error) {
	s := e.strategy
	if err := s.requireCross(ctx, "run steps"); err != nil {
		return nil, err
	}
	if iterations < 0 {
		return nil, fault(ValueError, "run steps", "give a positive number", "%d iterations", iterations)
	}
	m := &MultiStepContext{strategy: s, outputs: maps.Clone(initial), reduceOps: map[string]*ReduceOp{}, others: map[string]any{}}
	if m.outputs == nil {
		m.outputs = map[string]any{}
	}
	cross := withMode(ctx, mode{strategy: s, update: -1})
	for i := range max(iterations, 1) {
		inputs, err := it.Next(cross)
		if errors.Is(err, io.EOF) {
			if i == 0 {
				return nil, fmt.Errorf("strategy: run steps: no input: %w", io.ErrUnexpectedEOF)
			}
			break
		}
		if err != nil {
			return nil, err
		}
		if _, err := guarded("run steps", func() ([]any, error) { return nil, fn(cross, m, inputs) }); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// MakeNumpyDataset makes a dataset of host arrays: element i of it has row i of
// each leaf of the nest, as TensorFlow's make_numpy_dataset. Slices are tuples, maps
// of strings dictionaries; leaves are what tensors are made of, all with the same
// number of rows.
func (e *Extended) MakeNumpyDataset(nest any) (input.Dataset, error) {
	element, err := elementOf(nest)
	if err != nil {
		return input.Dataset{}, err
	}
	ds := input.FromSlices(element)
	return ds, ds.Err()
}

func elementOf(nest any) (input.Element, error) {
	switch x := nest.(type) {
	case []any:
		members := make([]input.Element, len(x))
		for i := range x {
			var err error
			if members[i], err = elementOf(x[i]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Tuple(members...), nil
	case map[string]any:
		members := map[string]input.Element{}
		for k := range x {
			var err error
			if members[k], err = elementOf(x[k]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Dict(members), nil
	}
	t, err := hostTensor(nest)
	if err != nil {
		return input.Element{}, &Error{Op: "dataset", Reason: fmt.Sprintf("a leaf of type %T", nest), Err: err, kind: TypeError}
	}
	kind, ok := input.KindOf(t.DType())
	if !ok {
		return input.Element{}, fault(TypeError, "dataset", "convert it", "a leaf of dtype %s", t.DType())
	}
	var leaf input.Tensor
	var failed error
	if err := t.ConstBytes(func(data []byte) { leaf, failed = input.FromBytes(kind, data, t.Shape().Dimensions...) }); err != nil {
		return input.Element{}, fmt.Errorf("strategy: dataset: %w", err)
	}
	return input.Leaf(leaf), failed
}
