package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Stacked is a per-replica value for each of several steps, on the devices: a
// function that is run on it takes that many steps in one launch, a loop on the
// devices. Its other arguments are the same for all steps, variables carry over
// from one step to the next, and the results are those of the last step.
type Stacked struct{ distributed }

var _ Value = (*Stacked)(nil)

// Steps returns the number of steps.
func (v *Stacked) Steps() int { return v.steps }

// Local is not for stacked values, which are written by the host and read by steps: its
// error always matches errors.ErrUnsupported.
func (v *Stacked) Local(context.Context, int) (*tensors.Tensor, error) {
	return nil, fmt.Errorf("strategy: reading %s back: %w; keep the host's batches", v.String(), errors.ErrUnsupported)
}

// StackBatches copies a global batch for each step to the devices, each cut among
// the replicas along dimension 0. All have one shape and dtype. The copies hold
// the bytes of all steps: as many batches as fit beside the step itself. Where a
// shapes.Shape stands for a batch nothing is copied: such a value is for
// [TrainStep.Compiled] and its like, and cannot run. The result is the caller's to
// Close; a loop that is under way keeps the memory until it has run.
func (s *TPUStrategy) StackBatches(ctx context.Context, batches []any, a logical.Annotation) (*Stacked, error) {
	return s.stackBatches(ctx, batches, a, false)
}

// stackBatches stacks global batches, or this process's rows of them.
func (s *TPUStrategy) stackBatches(ctx context.Context, batches []any, a logical.Annotation, local bool) (*Stacked, error) {
	if err := untraced(ctx, "stack batches", fault.InsteadOfGiving); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, errors.New("strategy: no batches to stack")
	}
	isShape := func(batch any) bool { _, ok := batch.(shapes.Shape); return ok }
	if s.slice != nil || slices.ContainsFunc(batches, isShape) {
		return s.abstractStack(batches, a, local)
	}
	all := make([]*tensors.Tensor, len(batches))
	for i, batch := range batches {
		var err error
		if all[i], err = hostTensor(batch); err != nil {
			return nil, fmt.Errorf("strategy: batch of step %d: %w", i, err)
		}
		if !all[i].Shape().Equal(all[0].Shape()) {
			return nil, fmt.Errorf("strategy: the batch of step %d has shape %s, that of step 0 %s; a loop has one shape for all",
				i, all[i].Shape(), all[0].Shape())
		}
	}
	shape, err := shareShape(all[0].Shape().Dimensions, s.shares(local))
	if err != nil {
		return nil, err
	}
	l, err := s.layout(all[0].DType(), shape, a, true)
	if err != nil {
		return nil, err
	}
	buffers := make([]*pjrt.Buffer, len(s.devices))
	if err := s.uploadSteps(ctx, &l, all, buffers, local); err != nil {
		return nil, errors.Join(err, closeAll(buffers))
	}
	v := &Stacked{}
	v.strategy, v.dtype, v.shape, v.annotation = s, l.dtype, shape, a
	v.perReplica, v.steps, v.buffers = true, len(batches), buffers
	if err := s.hold(&v.distributed); err != nil {
		return nil, errors.Join(err, v.free())
	}
	return v, nil
}

// uploadSteps copies each device's part of every step, one after the other.
func (s *TPUStrategy) uploadSteps(ctx context.Context, l *layout, batches []*tensors.Tensor, buffers []*pjrt.Buffer, local bool) error {
	stack := make([]byte, len(batches)*l.shardBytes)
	var scratch []byte
	for d, device := range s.devices {
		if !s.hosts.local[d] {
			continue
		}
		r, p := d/s.perReplica, d%s.perReplica
		at := s.batchIndex(r, local)
		for i, batch := range batches {
			err := batch.ConstBytes(func(data []byte) {
				copy(stack[i*l.shardBytes:], l.part(data[at*l.bytes:(at+1)*l.bytes], p, &scratch))
			})
			if err != nil {
				return fmt.Errorf("strategy: batch of step %d: %w", i, err)
			}
		}
		var err error
		dims := append([]int{len(batches)}, l.buffer...)
		if buffers[d], err = s.sys.Runtime().BufferFromHost(ctx, stack, l.wire, dims, device); err != nil {
			return fmt.Errorf("strategy: copying to replica %d, logical device %d: %w", r, p, err)
		}
	}
	return nil
}

// stepsOf returns the number of steps that the values are for, 0 if none is
// stacked.
func stepsOf(values []Value) (int, error) {
	steps := 0
	for i, v := range values {
		n := v.base().steps
		if n > 0 && steps > 0 && n != steps {
			return 0, fmt.Errorf("argument %d is for %d steps, another for %d", i, n, steps)
		}
		steps = max(steps, n)
	}
	return steps, nil
}

// RunSteps takes a training step on each of the batches, in order, in one launch: a
// loop on the devices over data that is copied there first. It gives the variables
// and the last step's loss that as many calls of Run give. A loop is compiled for
// each number of steps.
func (t *TrainStep) RunSteps(ctx context.Context, batches ...[]any) (*Mirrored, error) {
	if err := untraced(ctx, t.function.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, errors.New("strategy: no batches to run")
	}
	s := t.function.strategy
	stacked := make([]any, len(batches[0]))
	defer func() {
		for _, v := range stacked {
			if v, ok := v.(*Stacked); ok {
				_ = v.Close()
			}
		}
	}()
	for i := range stacked {
		column := make([]any, len(batches))
		for step, batch := range batches {
			if len(batch) != len(stacked) {
				return nil, fmt.Errorf("strategy: the batch of step %d has %d arguments, that of step 0 %d", step, len(batch), len(stacked))
			}
			column[step] = batch[i]
		}
		v, err := s.stackBatches(ctx, column, t.function.argument(i), t.function.opts.LocalBatch)
		if err != nil {
			return nil, &ArgumentError{Function: t.function.opts.Name, Argument: i, Reason: "not stacked", Err: err}
		}
		stacked[i] = v
	}
	_, results, err := t.function.once(ctx, stacked)
	if err != nil {
		return nil, err
	}
	if err := t.function.opts.guard.stopped(ctx, t.function); err != nil {
		return nil, errors.Join(err, results[0].Close())
	}
	return results[0].(*Mirrored), nil
}
