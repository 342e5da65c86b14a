package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
)

var _ Value = (*StackedBatches)(nil)

// StackBatches copies one global batch for each step to the devices, and splits each over the
// replicas along dimension 0. All batches must have the same shape and dtype. The stack uses the
// device memory of all batches. With a [shapes.Shape] instead of a batch nothing is copied, and the
// value is only valid for [Function.Compiled]. The caller must close the result; a loop in progress
// keeps the memory.
func (s *TPUStrategy) StackBatches(ctx context.Context, batches []any, a logical.Annotation) (*StackedBatches, error) {
	return batchSplitter{s, false, a}.stackBatches(ctx, batches)
}

func (b batchSplitter) stackBatches(ctx context.Context, batches []any) (*StackedBatches, error) {
	if err := RefuseTracing(ctx, "stack batches", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	if err := b.checkOpen(); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, fault.New(errkind.ValueError, "stack batches", "give the batch of each step", "no batches to stack")
	}
	var first shapes.Shape
	hosts, outline := make([]*tensors.Tensor, len(batches)), false
	for i, batch := range batches {
		shape, ok := batch.(shapes.Shape)
		if !ok {
			var err error
			if hosts[i], err = hostTensor(batch); err != nil {
				return nil, batchFault(i, err)
			}
			shape = hosts[i].Shape()
		}
		outline = outline || ok
		if i == 0 {
			first = shape
		}
		if !shape.Equal(first) {
			return nil, fault.New(errkind.ValueError, "stack batches", "a loop has one shape for all",
				"the batch of step %d has shape %s, that of step 0 %s", i, shape, first)
		}
	}
	dims, l, err := b.replicaLayout(first, true)
	if err != nil {
		return nil, err
	}
	var buffers engine.Buffers
	if !outline {
		buffers = b.runtime.Buffers()
		if err := b.uploadSteps(ctx, l, hosts, buffers); err != nil {
			return nil, errors.Join(err, buffers.Close())
		}
	}
	v := &StackedBatches{deviceValue{strategy: b.TPUStrategy, dtype: first.DType, shape: dims, annotation: b.annotation,
		perReplica: true, steps: len(batches), buffers: buffers, abstract: len(buffers) == 0}}
	v.valueAccess = engine.NewAccess(internalValue{&v.deviceValue})
	if err := b.registerValue(&v.deviceValue); err != nil {
		return nil, errors.Join(err, v.release())
	}
	return v, nil
}

// uploadSteps copies each device's shards of all steps.
func (b batchSplitter) uploadSteps(ctx context.Context, l *engine.Layout, batches []*tensors.Tensor,
	buffers engine.Buffers) error {
	stack := make([]byte, len(batches)*l.ShardBytes)
	var scratch []byte
	for d, device := range b.runtime.All {
		if !b.runtime.Local[d] {
			continue
		}
		r, p := d/b.logicalDevices, d%b.logicalDevices
		at := b.shareOf(r)
		for i, batch := range batches {
			err := batch.ConstBytes(func(data []byte) {
				copy(stack[i*l.ShardBytes:], l.ExtractShard(data[at*l.Bytes:(at+1)*l.Bytes], d, &scratch))
			})
			if err != nil {
				return batchFault(i, err)
			}
		}
		var err error
		dims := append([]int{len(batches)}, l.Buffer...)
		if buffers[d], err = b.runtime.System.Runtime().BufferFromHost(ctx, stack, l.Type, dims, device); err != nil {
			return fault.Wrap(fmt.Sprintf("copying to replica %d, logical device %d", r, p), err, "")
		}
	}
	return nil
}

func batchFault(step int, err error) error {
	return &Error{Op: fmt.Sprintf("strategy: batch of step %d", step), Err: err, Class: errkind.KindOr(err,
		errkind.ValueError)}
}

// stepsOf returns the number of steps for which the values contain batches, or 0 if no value is a
// [StackedBatches].
func stepsOf(values []Value) (int, error) {
	steps := 0
	for i, v := range values {
		n := v.base().steps
		if n > 0 && steps > 0 && n != steps {
			return 0, fault.New(errkind.ValueError, "stacked values", "",
				"argument %d is for %d steps, another for %d", i, n, steps)
		}
		steps = max(steps, n)
	}
	return steps, nil
}

// RunSteps runs the function once for each of the batches, in order, in one launch.
func (m internalFunction) RunSteps(ctx context.Context, batches [][]any) ([]Value, error) {
	f := m.Function
	if err := RefuseTracing(ctx, f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, fault.New(errkind.ValueError, f.opts.Name, "give the batch of each step", "no batches to run")
	}
	stacked := make([]any, len(batches[0]))
	var made temporaryValues
	defer func() { _ = made.close() }()
	for i := range stacked {
		column := make([]any, len(batches))
		for step, batch := range batches {
			if len(batch) != len(stacked) {
				return nil, fault.New(errkind.ValueError, f.opts.Name, "give the batches of all steps the same arguments",
					"the batch of step %d has %d arguments, that of step 0 %d", step, len(batch), len(stacked))
			}
			column[step] = batch[i]
		}
		v, err := batchSplitter{f.strategy, f.opts.LocalBatch, f.argumentAnnotation(i)}.stackBatches(ctx, column)
		if err != nil {
			return nil, &ArgumentError{Function: f.opts.Name, Argument: i, Reason: "not stacked", Err: err}
		}
		stacked[i], made = v, append(made, v)
	}
	_, results, err := f.runOnce(ctx, stacked)
	if err != nil || f.guard == nil {
		return results, err
	}
	if err := f.guard.Launched(ctx, f); err != nil {
		return nil, errors.Join(err, temporaryValues(results).close())
	}
	return results, nil
}
