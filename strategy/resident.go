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

// residentLoop has the state of a function that runs repeatedly on batches, such as a training
// step. Its launches are bound to buffers, and each run copies its batch to these buffers. From the
// second batch on there are no lookups by name and no allocations.
type residentLoop struct {
	mu sync.Mutex
	// bounds are the bindings, one for each signature of a batch, the most recent first.
	bounds []*residentBinding
	// hosts are the tensors of the current batch, nil for values on the devices.
	hosts []*tensors.Tensor
}

// residentBinding is a function that is bound to buffers for a batch.
type residentBinding struct {
	bound *Binding
	slots []residentSlot
}

// residentSlot is the destination of one argument of the batch.
type residentSlot struct {
	// feed is the value that host tensors are copied to, and host is their shape. feed is nil if
	// the caller passes values.
	feed   *deviceValue
	layout *engine.Layout
	host   shapes.Shape
	// like has the signature of the caller's values, without buffers.
	like *deviceValue
}

// RunResident runs the function on a batch and returns its results, which the next run overwrites.
func (m internalFunction) RunResident(ctx context.Context, batch []any) ([]Value, error) {
	f := m.Function
	if err := RefuseTracing(ctx, f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	f.resident.mu.Lock()
	defer f.resident.mu.Unlock()
	s := f.strategy
	if err := s.runnable("running", f.opts.Name); err != nil {
		return nil, err
	}
	if s.closed.Load() || f.closed.Load() {
		return nil, f.check()
	}
	batch, made, err := f.placeAll(ctx, batch)
	if err != nil {
		return nil, err
	}
	defer made.close()
	if err := f.readBatch(batch); err != nil {
		return nil, err
	}
	if f.unevenBatches(batch) {
		// This batch has an exceptional shape, so its binding is not kept.
		clear(f.resident.hosts)
		_, results, err := f.once(ctx, batch)
		return results, err
	}
	b, err := f.bound(ctx, batch)
	defer clear(f.resident.hosts) // the caller owns them
	if err != nil {
		return nil, err
	}
	if err := b.fill(ctx, batch, f.resident.hosts); err != nil {
		return nil, err
	}
	if err := b.bound.Launch(ctx); err != nil {
		return nil, err
	}
	return b.bound.Results(), nil
}

// close releases the batches and the results.
func (r *residentLoop) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, b := range r.bounds {
		errs = append(errs, b.bound.Close())
	}
	r.bounds = nil
	return errors.Join(errs...)
}

// bound returns the binding for the signature of the batch. readBatch was called before.
func (f *Function) bound(ctx context.Context, batch []any) (*residentBinding, error) {
	r := &f.resident
	for i, b := range r.bounds {
		if b.takes(batch, r.hosts) {
			r.bounds[0], r.bounds[i] = b, r.bounds[0]
			return b, nil
		}
	}
	args := slices.Clone(batch)
	for i, host := range r.hosts {
		if host != nil {
			args[i] = host
		}
	}
	values, made, err := f.arguments(ctx, args, toRun)
	if err != nil {
		return nil, err
	}
	b, err := f.bindResident(ctx, values)
	if err != nil {
		_ = made.close()
		return nil, err
	}
	b.bound.made = made
	r.bounds = slices.Insert(r.bounds, 0, b)
	return b, nil
}

// bindResident binds the function to the values of a batch.
func (f *Function) bindResident(ctx context.Context, values []Value) (b *residentBinding, err error) {
	b = &residentBinding{slots: make([]residentSlot, len(f.resident.hosts))}
	for i, host := range f.resident.hosts {
		slot, base := &b.slots[i], values[i].base()
		if host == nil {
			slot.like = base.outlined()
			continue
		}
		slot.feed, slot.host = base, host.Shape()
		if slot.layout, err = f.strategy.layout(base.dtype, base.shape, base.annotation, true); err != nil {
			return nil, err
		}
	}
	b.bound, err = f.bind(ctx, values)
	return b, err
}

// readBatch converts the batch's host values to tensors, in f.resident.hosts.
func (f *Function) readBatch(batch []any) error {
	f.resident.hosts = slices.Grow(f.resident.hosts[:0], len(batch))[:len(batch)]
	for i, arg := range batch {
		f.resident.hosts[i] = nil
		if _, ok := arg.(Value); ok {
			continue
		}
		tensor, err := hostTensor(arg)
		if err != nil {
			return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: fmt.Sprintf("a host value of type %T", arg), Hint: argumentHint(arg), Err: err}
		}
		f.resident.hosts[i] = tensor
	}
	return nil
}

// takes reports whether the batch has the signature of the binding.
func (b *residentBinding) takes(batch []any, hosts []*tensors.Tensor) bool {
	if len(b.slots) != len(batch) {
		return false
	}
	for i := range b.slots {
		slot := &b.slots[i]
		switch host := hosts[i]; {
		case (host != nil) != (slot.feed != nil):
			return false
		case host != nil && (host.DType() != slot.host.DType || !slices.Equal(host.Shape().Dimensions, slot.host.Dimensions)):
			return false
		case host == nil && !batch[i].(Value).base().sameSignature(slot.like):
			return false
		}
	}
	return true
}

// fill copies the batch to the buffers that the bound step reads.
func (b *residentBinding) fill(ctx context.Context, batch []any, hosts []*tensors.Tensor) error {
	f := b.bound.program.function
	for i, host := range hosts {
		var buffers engine.Buffers
		var err error
		reason := "not copied"
		if host != nil {
			buffers, err = b.slots[i].fill(ctx, host, batchShare{f.strategy, f.opts.LocalBatch, f.argument(i)})
		} else {
			reason = "a closed value"
			buffers, err = batch[i].(Value).base().live()
		}
		if err != nil {
			return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: reason, Err: err}
		}
		b.bound.setColumn(i, buffers)
	}
	return nil
}

func (slot *residentSlot) fill(ctx context.Context, host *tensors.Tensor, b batchShare) ([]*pjrt.Buffer, error) {
	return slot.feed.refill(func(buffers engine.Buffers) error {
		return b.putTensor(ctx, slot.layout, host, func(r int, data []byte) []byte {
			at := b.part(r)
			return data[at*slot.layout.Bytes : (at+1)*slot.layout.Bytes]
		}, buffers)
	})
}

// unevenBatches reports whether the replicas receive different numbers of rows of the batch.
// readBatch was called before.
func (f *Function) unevenBatches(batch []any) bool {
	for i, host := range f.resident.hosts {
		if host != nil && f.uneven(host.Shape()) {
			return true
		}
		if host == nil && batch[i].(Value).base().ragged != nil {
			return true
		}
	}
	return false
}
