package gomlx

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Buffer is a global tensor. It is in host memory until it is the input of a program, and then on
// the devices in the layout of that program. Its memory is freed by Finalize, by a donation to an
// execution, by the backend's Finalize, or by the garbage collector. It is safe for concurrent use.
type Buffer struct{ memory *memory }

var _ compute.Buffer = (*Buffer)(nil)

// memory is the content of a Buffer. It is a separate object because the cleanup of the Buffer
// refers to it.
type memory struct {
	backend *Backend
	shape   shapes.Shape
	num     compute.DeviceNum

	mu         sync.Mutex
	host       []byte       // row-major, in the plugin's format; nil if the value is only on devices
	placements []*placement // copies of the value in different layouts, most recently used first
	// later computes the value, if it is a program's result and the backend compiles ahead of time.
	later promise
	gone  error // not nil if the value was freed: the error of further uses
	// users is the number of executions that currently read the value. owned is true while an
	// execution to which the value is donated is launched. See claim.go.
	users int
	owned bool
	idle  *sync.Cond // signaled when users becomes 0; nil until an execution waits
}

// placement is a tensor on the devices in one layout. A placement on one device has only the buffer
// of that device.
type placement struct {
	layout *engine.Layout
	engine.Buffers
}

// has reports whether the part of a partition is present.
func (l *placement) has(partition int) bool { return l.Buffers[partition] != nil }

// layouts is the maximum number of layouts in which a tensor is kept.
const layouts = 2

// newBuffer returns a Buffer that owns h.
func (b *Backend) newBuffer(h *memory) (*Buffer, error) {
	if err := b.holds.Track(h); err != nil {
		return nil, err
	}
	out := &Buffer{memory: h}
	// GoMLX often drops buffers without calling Finalize.
	runtime.AddCleanup(out, func(h *memory) { _ = h.backend.holds.Free(h) }, h)
	return out, nil
}

// Close frees the memory.
func (h *memory) Close() error { return h.end(ErrFinalized) }

// end frees the memory. Further uses return why.
func (h *memory) end(why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return nil
	}
	h.gone, h.host = why, nil
	var errs []error
	for _, l := range h.placements {
		errs = append(errs, l.Close())
	}
	h.placements, h.later = nil, nil
	return errors.Join(errs...)
}

// Backend returns the backend that owns the buffer.
func (b *Buffer) Backend() compute.Backend { return b.memory.backend }

// Finalize frees the buffer's memory. Finalizing twice, or a donated buffer, does nothing.
func (b *Buffer) Finalize() error { return b.memory.backend.holds.Free(b.memory) }

// Shape returns the buffer's shape. It also works after the buffer was freed.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.memory.shape.Clone(), nil }

// DeviceNum returns the device for which the buffer was created. Device 0 represents all devices.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return b.memory.num, nil }

// Data returns an error matching errors.ErrUnsupported: device memory can only be accessed by
// copying.
func (b *Buffer) Data() (any, error) {
	return nil, &errkind.Fault{Op: "gomlx: direct access to a buffer", Hint: "use ToFlatData", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// ToFlatData waits for the buffer's value and copies it into flat, a Go slice of the dtype's Go
// type with the length of the shape's size. Each part is transferred once, even if several devices
// have a copy.
func (b *Buffer) ToFlatData(flat any) error {
	err := b.memory.toFlat(flat)
	runtime.KeepAlive(b)
	if err != nil {
		return failed("read", fmt.Sprintf("of %s", b.memory.shape), err)
	}
	return nil
}

func (h *memory) toFlat(flat any) error {
	if err := h.backend.holds.Check(); err != nil {
		return err
	}
	dst, err := hostdata.Bytes(flat, h.shape.DType, h.shape.Size())
	if err != nil {
		return err
	}
	if !h.shape.DType.IsPacked() {
		return h.read(dst)
	}
	values := make([]byte, h.shape.Size())
	if err := h.read(values); err != nil {
		return err
	}
	hostdata.Pack(dst, values, h.shape.DType)
	return nil
}

// read copies the value, row-major, into dst.
func (h *memory) read(dst []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	return h.readLocked(dst)
}

func (h *memory) readLocked(dst []byte) error {
	switch {
	case h.gone != nil:
		return h.gone
	case h.host != nil:
		copy(dst, h.host)
		return nil
	case h.later != nil:
		tensor, err := h.later()
		copy(dst, tensor)
		return err
	}
	for _, l := range h.placements {
		if from, _, ok := h.backend.runtime.Sources(l.layout, 0, l.has, false); ok {
			return h.backend.runtime.Get(h.backend.runtime.Life, l.layout, l.Buffers, from, dst)
		}
	}
	whole, err := h.backend.everywhere(h.placements[0], h.shape)
	if err != nil {
		return err
	}
	from, _, _ := h.backend.runtime.Sources(whole.layout, 0, nil, true)
	return errors.Join(h.backend.runtime.Get(h.backend.runtime.Life, whole.layout, whole.Buffers, from, dst), whole.Close())
}

// bytes returns the value in host memory, which must not be modified. h.mu must be held.
func (h *memory) bytes() ([]byte, error) {
	if h.host != nil {
		return h.host, nil
	}
	t, err := hostdata.PJRTType(h.shape.DType)
	if err != nil {
		return nil, err
	}
	out := make([]byte, t.HostBytes()*h.shape.Size())
	return out, h.readLocked(out)
}

// value returns the value on a backend that compiles ahead of time, where values are in host memory
// or not computed yet.
func (h *memory) value() (promise, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.later != nil {
		return h.later, h.gone
	}
	host := h.host
	return func() ([]byte, error) { return host, nil }, h.gone
}

// layLocked returns the value in a layout, and reshards it if necessary.
func (h *memory) layLocked(want *engine.Layout) (*placement, error) {
	for i, l := range h.placements {
		if l.layout.Same(want) && h.backend.runtime.Here(l.Buffers) {
			if i > 0 {
				h.placements[0], h.placements[i] = l, h.placements[0]
			}
			return l, nil
		}
	}
	if h.host == nil && h.later == nil {
		h.backend.moved.Add(1)
	}
	tensor, err := h.bytes()
	if err != nil {
		return nil, err
	}
	l, err := h.backend.spread(tensor, want)
	if err != nil {
		return nil, err
	}
	h.keepLocked(l)
	return l, nil
}

// keepLocked adds a placement to the value, and frees the least recently used placement if there
// are too many.
func (h *memory) keepLocked(l *placement) {
	h.placements = append([]*placement{l}, h.placements...)
	h.host = nil
	if h.users > 1 { // another execution may be about to use the placement that would be freed
		return
	}
	for len(h.placements) > layouts {
		last := len(h.placements) - 1
		_ = h.placements[last].Close() // a copy
		h.placements[last], h.placements = nil, h.placements[:last]
	}
}

// whole returns the layout of a tensor that is replicated on all devices.
func (b *Backend) whole(shape shapes.Shape) (*engine.Layout, error) {
	return b.layout(spmd.ShardedTensor{DType: shape.DType, Spec: sharding.Replicated(shape.Rank()), GlobalDims: shape.Dimensions})
}

// spread transfers the parts of a tensor to the devices of this process.
func (b *Backend) spread(tensor []byte, at *engine.Layout) (*placement, error) {
	l := &placement{layout: at, Buffers: b.runtime.Buffers()}
	if err := b.runtime.Put(b.runtime.Life, at, func(int) []byte { return tensor }, l.Buffers); err != nil {
		return nil, err
	}
	return l, nil
}

// onLocked returns a replicated placement of the value that includes the device num, or nil.
func (h *memory) onLocked(num compute.DeviceNum, whole *engine.Layout) *placement {
	for _, l := range h.placements {
		if l.has(int(num)) && l.layout.Same(whole) {
			return l
		}
	}
	return nil
}

// aloneLocked copies the complete value to one device.
func (h *memory) aloneLocked(num compute.DeviceNum, whole *engine.Layout) (*placement, error) {
	m := h.backend.runtime
	to := &placement{whole, m.Buffers()}
	for from := range m.All {
		if l := h.onLocked(compute.DeviceNum(from), whole); l != nil {
			b, err := l.Buffers[from].CopyToDevice(h.backend.runtime.Life, m.All[num])
			if errors.Is(err, errors.ErrUnsupported) {
				break // copy through the host
			}
			to.Buffers[num] = b
			return to, err
		}
	}
	tensor, err := h.bytes()
	if err != nil {
		return nil, err
	}
	var scratch []byte
	return to, m.PutPart(h.backend.runtime.Life, whole, int(num), tensor, &scratch, to.Buffers)
}

// CopyToDevice returns a new buffer with the same value for another device.
func (b *Buffer) CopyToDevice(num compute.DeviceNum) (compute.Buffer, error) {
	h := b.memory
	if err := h.backend.holds.Check(); err != nil {
		return nil, err
	}
	if err := h.backend.has(num); err != nil {
		return nil, err
	}
	if num == h.num {
		return nil, fault(fmt.Sprintf("copy of %s", h.shape), fmt.Sprintf("it is for device %d already", num), "use the buffer as it is")
	}
	to, err := h.copyTo(num)
	runtime.KeepAlive(b)
	if err != nil {
		return nil, failed("copy", fmt.Sprintf("of %s to device %d", h.shape, num), err)
	}
	return h.backend.newBuffer(&memory{backend: h.backend, shape: h.shape, num: num, placements: []*placement{to}})
}

func (h *memory) copyTo(num compute.DeviceNum) (*placement, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := errors.Join(h.usable(), h.backend.named()); err != nil {
		return nil, err
	}
	whole, err := h.backend.whole(h.shape)
	if err != nil {
		return nil, err
	}
	return h.aloneLocked(num, whole)
}
