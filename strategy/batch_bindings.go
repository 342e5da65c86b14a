package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// batchBindings runs a function repeatedly on batches, as in a training loop. It copies each batch
// to device buffers that are already arguments of the compiled program. Runs after the first
// therefore need no lookups by name and no allocations.
type batchBindings struct {
	mu sync.Mutex
	// bindings has one binding for each signature of a batch, the most recently used first.
	bindings []*batchBinding
	// hosts are the host tensors of the current batch; nil for a value on the devices.
	hosts []*tensors.Tensor
}

type batchBinding struct {
	bound *Binding
	slots []argumentSlot
}

// argumentSlot has the device buffers into which one argument of each batch is copied.
type argumentSlot struct {
	// value is the destination of host tensors, and host is their shape. value is nil if the caller
	// passes values on the devices.
	value  *deviceValue
	layout *engine.Layout
	host   shapes.Shape
	// signature is such a value without buffers, for comparisons.
	signature *deviceValue
}

// RunResident runs the function on a batch in buffers that stay on the devices. It returns the
// results, which the next run overwrites.
func (m internalFunction) RunResident(ctx context.Context, batch []any) ([]Value, error) {
	f := m.Function
	if err := RefuseTracing(ctx, f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	f.batches.mu.Lock()
	defer f.batches.mu.Unlock()
	s := f.strategy
	if err := s.checkRunnable("running", f.opts.Name); err != nil {
		return nil, err
	}
	if s.closed.Load() || f.closed.Load() {
		return nil, f.checkOpen()
	}
	batch, made, err := f.placeArguments(ctx, batch)
	if err != nil {
		return nil, err
	}
	defer made.close()
	if err := f.readHostTensors(batch); err != nil {
		return nil, err
	}
	if f.isUnevenBatch(batch) {
		// This batch has an exceptional shape, so its binding is not kept.
		clear(f.batches.hosts)
		_, results, err := f.runOnce(ctx, batch)
		return results, err
	}
	b, err := f.bindingFor(ctx, batch)
	defer clear(f.batches.hosts) // the caller owns them
	if err != nil {
		return nil, err
	}
	if err := b.uploadBatch(ctx, batch, f.batches.hosts); err != nil {
		return nil, err
	}
	if err := b.bound.Launch(ctx); err != nil {
		return nil, err
	}
	return b.bound.Results(), nil
}

func (r *batchBindings) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, b := range r.bindings {
		errs = append(errs, b.bound.Close())
	}
	r.bindings = nil
	return errors.Join(errs...)
}

// bindingFor returns the binding that accepts the shapes, dtypes and layouts of the batch. Call
// readHostTensors first.
func (f *Function) bindingFor(ctx context.Context, batch []any) (*batchBinding, error) {
	r := &f.batches
	for i, b := range r.bindings {
		if b.accepts(batch, r.hosts) {
			r.bindings[0], r.bindings[i] = b, r.bindings[0]
			return b, nil
		}
	}
	args := slices.Clone(batch)
	for i, host := range r.hosts {
		if host != nil {
			args[i] = host
		}
	}
	values, made, err := f.prepareArguments(ctx, args, purposeRun)
	if err != nil {
		return nil, err
	}
	b, err := f.newBatchBinding(ctx, values)
	if err != nil {
		_ = made.close()
		return nil, err
	}
	b.bound.ownedValues = made
	r.bindings = slices.Insert(r.bindings, 0, b)
	return b, nil
}

func (f *Function) newBatchBinding(ctx context.Context, values []Value) (b *batchBinding, err error) {
	b = &batchBinding{slots: make([]argumentSlot, len(f.batches.hosts))}
	for i, host := range f.batches.hosts {
		slot, base := &b.slots[i], values[i].base()
		if host == nil {
			slot.signature = base.withoutContents()
			continue
		}
		slot.value, slot.host = base, host.Shape()
		if slot.layout, err = f.strategy.layout(base.dtype, base.shape, base.annotation, true); err != nil {
			return nil, err
		}
	}
	b.bound, err = f.bind(ctx, values)
	return b, err
}

// readHostTensors converts the host values of a batch to tensors and stores the tensors in
// f.batches.hosts.
func (f *Function) readHostTensors(batch []any) error {
	f.batches.hosts = slices.Grow(f.batches.hosts[:0], len(batch))[:len(batch)]
	for i, arg := range batch {
		f.batches.hosts[i] = nil
		if _, ok := arg.(Value); ok {
			continue
		}
		tensor, err := hostTensor(arg)
		if err != nil {
			return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: fmt.Sprintf("a host value of type %T",
				arg), Hint: argumentHint(arg), Err: err}
		}
		f.batches.hosts[i] = tensor
	}
	return nil
}

// accepts reports whether the binding can run a batch with these shapes, dtypes and layouts.
func (b *batchBinding) accepts(batch []any, hosts []*tensors.Tensor) bool {
	if len(b.slots) != len(batch) {
		return false
	}
	for i := range b.slots {
		slot := &b.slots[i]
		switch host := hosts[i]; {
		case (host != nil) != (slot.value != nil):
			return false
		case host != nil && (host.DType() != slot.host.DType || !slices.Equal(host.Shape().Dimensions,
			slot.host.Dimensions)):
			return false
		case host == nil && !batch[i].(Value).base().sameSignature(slot.signature):
			return false
		}
	}
	return true
}

// uploadBatch copies the host tensors of a batch to the buffers of the binding. Arguments that are
// already on the devices are used directly.
func (b *batchBinding) uploadBatch(ctx context.Context, batch []any, hosts []*tensors.Tensor) error {
	f := b.bound.program.function
	for i, host := range hosts {
		var buffers engine.Buffers
		var err error
		reason := "not copied"
		if host != nil {
			buffers, err = b.slots[i].upload(ctx, host, batchSplitter{f.strategy, f.opts.LocalBatch,
				f.argumentAnnotation(i)})
		} else {
			reason = "a closed value"
			buffers, err = batch[i].(Value).base().openBuffers()
		}
		if err != nil {
			return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: reason, Err: err}
		}
		b.bound.setColumn(i, buffers)
	}
	return nil
}

func (slot *argumentSlot) upload(ctx context.Context, host *tensors.Tensor, b batchSplitter) ([]*pjrt.Buffer, error) {
	return slot.value.refill(func(buffers engine.Buffers) error {
		return b.putTensor(ctx, slot.layout, host, func(r int, data []byte) []byte {
			at := b.shareOf(r)
			return data[at*slot.layout.Bytes : (at+1)*slot.layout.Bytes]
		}, buffers)
	})
}

// isUnevenBatch reports whether the rows of the batch do not divide evenly over the replicas. Call
// readHostTensors first.
func (f *Function) isUnevenBatch(batch []any) bool {
	for i, host := range f.batches.hosts {
		if host != nil && f.isUneven(host.Shape()) {
			return true
		}
		if host == nil && batch[i].(Value).base().replicaShapes != nil {
			return true
		}
	}
	return false
}
