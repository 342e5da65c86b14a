package strategy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// trainBound is a step bound to buffers that each run fills with its batch.
type trainBound struct {
	bound *Bound
	slots []trainSlot
}

// trainSlot is where an argument of the batch goes.
type trainSlot struct {
	// feed is the value that host tensors are copied into, nil where the caller
	// gives values; host is then their shape.
	feed   *distributed
	layout layout
	host   shapes.Shape
	// like is what the caller's values are like: a value without buffers.
	like *distributed
	// spread is what a value of some devices was copied to.
	spread Value
}

// bind returns the bound step for the signature of the batch, which was read.
func (t *TrainStep) bind(ctx context.Context, batch []any) (*trainBound, error) {
	if t.last != nil && t.last.takes(batch, t.hosts) {
		return t.last, nil
	}
	key := t.key(batch)
	if b, ok := t.steps[key]; ok {
		t.last = b
		return b, nil
	}
	args := slices.Clone(batch)
	for i, host := range t.hosts {
		if host != nil {
			args[i] = host
		}
	}
	values, release, err := t.function.place(ctx, args, toRun)
	if err != nil {
		return nil, err
	}
	b, err := t.bindTo(ctx, values)
	if err != nil {
		release()
		return nil, err
	}
	t.steps[key], t.last = b, b
	return b, nil
}

// bindTo binds the step to the values of a batch.
func (t *TrainStep) bindTo(ctx context.Context, values []Value) (*trainBound, error) {
	p, err := t.function.program(ctx, values, toRun)
	if err != nil {
		return nil, err
	}
	b := &trainBound{slots: make([]trainSlot, len(t.hosts))}
	if b.bound, err = p.bind(ctx, values); err != nil {
		return nil, err
	}
	for i, host := range t.hosts {
		slot, base := &b.slots[i], values[i].base()
		if host == nil {
			slot.like = base.like()
			continue
		}
		slot.feed, slot.host = base, host.Shape()
		if slot.layout, err = t.function.strategy.layout(base.dtype, base.shape, base.annotation, true); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// read makes tensors of the batch's host values. The batch stays as it is.
func (t *TrainStep) read(batch []any) error {
	t.hosts = slices.Grow(t.hosts[:0], len(batch))[:len(batch)]
	for i, arg := range batch {
		t.hosts[i] = nil
		if v, ok := arg.(Value); ok {
			if isNil(v) {
				return &ArgumentError{Function: t.function.opts.Name, Argument: i, Reason: "no value: a nil pointer"}
			}
			continue
		}
		tensor, err := hostTensor(arg)
		if err != nil {
			return &ArgumentError{Function: t.function.opts.Name, Argument: i, Reason: fmt.Sprintf("a host value of type %T", arg), Hint: argumentHint(arg), Err: err}
		}
		t.hosts[i] = tensor
	}
	return nil
}

// key tells batches of different signatures apart.
func (t *TrainStep) key(batch []any) string {
	var key strings.Builder
	for i, host := range t.hosts {
		if host != nil {
			key.WriteString("h" + host.Shape().String())
		} else {
			key.WriteString("v" + signature([]Value{batch[i].(Value)}))
		}
	}
	return key.String()
}

// takes says whether the batch has the step's signature: key, without allocations.
func (b *trainBound) takes(batch []any, hosts []*tensors.Tensor) bool {
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
		case host == nil && !batch[i].(Value).base().isLike(slot.like):
			return false
		}
	}
	return true
}

// fill puts the batch where the bound step reads it.
func (b *trainBound) fill(ctx context.Context, batch []any, hosts []*tensors.Tensor) error {
	f := b.bound.program.function
	fail := func(i int, reason string, err error) error {
		return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: reason, Err: err}
	}
	for i, host := range hosts {
		if host != nil {
			buffers, err := f.strategy.feed(ctx, &b.slots[i], host, f.opts.LocalBatch)
			if err != nil {
				return fail(i, "not copied", err)
			}
			b.bound.setColumn(i, buffers)
			continue
		}
		v := batch[i].(Value)
		if err := f.strategy.owns(v); err != nil {
			return fail(i, "a value of another strategy", err)
		}
		if v.base().only != nil {
			all, _, err := f.strategy.spread(ctx, []Value{v})
			if err != nil {
				return fail(i, "on some devices, and not copied to the others", err)
			}
			v = all[0]
			b.slots[i].spread = v
		}
		buffers, err := v.base().live()
		if err != nil {
			return fail(i, "a closed value", err)
		}
		b.bound.setColumn(i, buffers)
	}
	return nil
}

// feed copies a global batch, or this process's rows of one, into a slot's buffers.
func (s *TPUStrategy) feed(ctx context.Context, slot *trainSlot, host *tensors.Tensor, local bool) ([]*pjrt.Buffer, error) {
	return slot.feed.refill(func(buffers []*pjrt.Buffer) error {
		var failed error
		l := &slot.layout
		err := host.ConstBytes(func(data []byte) {
			failed = s.uploadHeld(ctx, l, func(r int) []byte {
				at := s.batchIndex(r, local)
				return data[at*l.bytes : (at+1)*l.bytes]
			}, buffers)
		})
		return cmp.Or(failed, err)
	})
}

// setColumn points an argument of the step at other buffers.
func (b *Bound) setColumn(argument int, buffers []*pjrt.Buffer) {
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	b.columns[argument] = buffers
	next := 0
	for i, v := range b.program.variables {
		if v != nil {
			continue
		}
		if next == argument {
			for row, d := range b.program.rows {
				b.args[row][i] = buffers[d]
			}
			return
		}
		next++
	}
}

// uneven reports whether replicas receive different numbers of rows of the batch, which was
// read.
func (t *TrainStep) uneven(batch []any) bool {
	for i, host := range t.hosts {
		if host != nil && t.function.strategy.uneven(host.Shape()) {
			return true
		}
		if host == nil && batch[i].(Value).base().ragged != nil {
			return true
		}
	}
	return false
}

// runUneven takes a step on a batch of which replicas receive different numbers of rows. It
// is no batch of a loop: nothing is kept for the next.
func (t *TrainStep) runUneven(ctx context.Context, batch []any) (*Mirrored, error) {
	_, results, err := t.function.once(ctx, batch)
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}
