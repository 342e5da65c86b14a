package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// residentLoop is the engine of a function that runs again and again on batches, such as a training
// step: its launches stay bound to buffers, which each run fills with its batch. Nothing is looked
// up by name and nothing is allocated from the second batch on.
type residentLoop struct {
	mu sync.Mutex
	// bounds are the launches, one for each signature of a batch; the one that ran last comes first.
	bounds []*residentBinding
	// hosts are the tensors of the batch under way, nil for values.
	hosts []*tensors.Tensor
}

// residentBinding is a function bound to buffers that each run fills with its batch.
type residentBinding struct {
	bound *Binding
	slots []residentSlot
}

// residentSlot is where an argument of the batch goes.
type residentSlot struct {
	// feed is the value that host tensors are copied into, nil where the caller gives values; host
	// is then their shape.
	feed   *deviceValue
	layout *mesh.Layout
	host   shapes.Shape
	// like is what the caller's values are like: a value without buffers.
	like *deviceValue
}

// RunResident runs the function on a batch and returns its results, which the next run overwrites.
func (m innerFunction) RunResident(ctx context.Context, batch []any) ([]Value, error) {
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
		// It is no batch of a loop: nothing is kept for the next.
		clear(f.resident.hosts)
		_, results, err := f.once(ctx, batch)
		return results, err
	}
	b, err := f.bound(ctx, batch)
	defer clear(f.resident.hosts) // they are the caller's, not ours to keep
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

// close releases the batches and the results that are kept.
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

// bound returns the bound function for the signature of the batch, which was read.
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

// readBatch makes tensors of the batch's host values. The batch stays as it is.
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

// takes says whether the batch has the signature that it is bound for.
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

// fill puts the batch where the bound step reads it.
func (b *residentBinding) fill(ctx context.Context, batch []any, hosts []*tensors.Tensor) error {
	f := b.bound.program.function
	for i, host := range hosts {
		var buffers mesh.Buffers
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

// fill copies a batch into the slot's buffers.
func (slot *residentSlot) fill(ctx context.Context, host *tensors.Tensor, b batchShare) ([]*pjrt.Buffer, error) {
	return slot.feed.refill(func(buffers mesh.Buffers) error {
		return b.putTensor(ctx, slot.layout, host, func(r int, data []byte) []byte {
			at := b.part(r)
			return data[at*slot.layout.Bytes : (at+1)*slot.layout.Bytes]
		}, buffers)
	})
}

// unevenBatches reports whether replicas receive different numbers of rows of the batch, which was
// read.
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
