package gomlx

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Buffer is a tensor, whole to its user wherever its parts are: on the host until a program takes
// it, and then on the devices as that program wants it. It holds memory until Finalize, until it is
// donated to an execution, or until the backend's Finalize; the garbage collector frees a forgotten
// one. It is safe for concurrent use.
type Buffer struct{ memory *memory }

var _ compute.Buffer = (*Buffer)(nil)

// memory is what a Buffer holds, the part of it that its cleanup may hold on to.
type memory struct {
	backend *Backend
	shape   shapes.Shape
	num     compute.DeviceNum

	mu         sync.Mutex
	host       []byte       // row-major, as the plugin takes it; nil if the value is on devices only
	placements []*placement // the layouts that it is in, the last used first
	// later gives the value ahead of time, if it is a program's result.
	later promise
	gone  error // why it cannot be used
	// users is how many executions are taking the value as it is, and owned whether one takes it for
	// good; see claim.go.
	users int
	owned bool
	idle  *sync.Cond // told when users is 0; nil until somebody waits
}

// placement is a tensor on the devices, or whole on one of them.
type placement struct {
	layout *mesh.Layout
	mesh.Buffers
}

// has reports whether a partition has its part.
func (l *placement) has(partition int) bool { return l.Buffers[partition] != nil }

// layouts is in how many layouts a tensor is kept at most.
const layouts = 2

// newBuffer takes charge of what h holds.
func (b *Backend) newBuffer(h *memory) (*Buffer, error) {
	if err := b.holds.Track(h); err != nil {
		return nil, err
	}
	out := &Buffer{memory: h}
	// GoMLX drops buffers without Finalize as a matter of course.
	runtime.AddCleanup(out, func(h *memory) { _ = h.backend.holds.Free(h) }, h)
	return out, nil
}

// Close frees what is held.
func (h *memory) Close() error { return h.end(ErrFinalized) }

// end frees what is held, for a reason.
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

// Shape returns the buffer's shape, also of a freed one.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.memory.shape.Clone(), nil }

// DeviceNum returns the device that the buffer was made for. Device 0 stands for all of them.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return b.memory.num, nil }

// Data returns an error matching errors.ErrUnsupported: memory of devices is reached by copies only.
func (b *Buffer) Data() (any, error) {
	return nil, &errkind.Fault{Op: "gomlx: direct access to a buffer", Hint: "use ToFlatData", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// ToFlatData waits for the buffer's value and copies it into flat, a Go slice of the dtype's Go
// type and of the shape's size. Each part is read once, wherever it is held.
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
		if from, _, ok := h.backend.machine.Sources(l.layout, 0, l.has, false); ok {
			return h.backend.machine.Get(h.backend.machine.Life, l.layout, l.Buffers, from, dst)
		}
	}
	whole, err := h.backend.everywhere(h.placements[0], h.shape)
	if err != nil {
		return err
	}
	from, _, _ := h.backend.machine.Sources(whole.layout, 0, nil, true)
	return errors.Join(h.backend.machine.Get(h.backend.machine.Life, whole.layout, whole.Buffers, from, dst), whole.Close())
}

// bytes returns the value in host memory, which must not be written.
func (h *memory) bytes() ([]byte, error) {
	if h.host != nil {
		return h.host, nil
	}
	t, err := hostdata.Type(h.shape.DType)
	if err != nil {
		return nil, err
	}
	out := make([]byte, t.HostBytes()*h.shape.Size())
	return out, h.readLocked(out)
}

// value returns the value ahead of time, where it is nowhere but in host memory or still to come.
func (h *memory) value() (promise, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.later != nil {
		return h.later, h.gone
	}
	host := h.host
	return func() ([]byte, error) { return host, nil }, h.gone
}

// layLocked brings the value into a layout, if it is not in it, and returns its parts.
func (h *memory) layLocked(want *mesh.Layout) (*placement, error) {
	for i, l := range h.placements {
		if l.layout.Same(want) && h.backend.machine.Here(l.Buffers) {
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

// keepLocked adds a layout to those of the value, and ends the one that was not used for the longest
// time.
func (h *memory) keepLocked(l *placement) {
	h.placements = append([]*placement{l}, h.placements...)
	h.host = nil
	if h.users > 1 { // somebody else may be about to execute with what would be freed
		return
	}
	for len(h.placements) > layouts {
		last := len(h.placements) - 1
		_ = h.placements[last].Close() // a copy
		h.placements[last], h.placements = nil, h.placements[:last]
	}
}

// whole is the layout of a tensor that is whole on each device.
func (b *Backend) whole(shape shapes.Shape) (*mesh.Layout, error) {
	return b.layout(spmd.ShardedTensor{DType: shape.DType, Spec: sharding.Replicated(shape.Rank()), Global: shape.Dimensions})
}

// spread puts the parts of a tensor on the devices of this process.
func (b *Backend) spread(tensor []byte, at *mesh.Layout) (*placement, error) {
	l := &placement{layout: at, Buffers: b.machine.Buffers()}
	if err := b.machine.Put(b.machine.Life, at, func(int) []byte { return tensor }, l.Buffers); err != nil {
		return nil, err
	}
	return l, nil
}

// onLocked returns the value whole on a device, of a layout that the value has.
func (h *memory) onLocked(num compute.DeviceNum, whole *mesh.Layout) *placement {
	for _, l := range h.placements {
		if l.has(int(num)) && l.layout.Same(whole) {
			return l
		}
	}
	return nil
}

// aloneLocked copies the value to one device alone.
func (h *memory) aloneLocked(num compute.DeviceNum, whole *mesh.Layout) (*placement, error) {
	m := h.backend.machine
	to := &placement{whole, m.Buffers()}
	for from := range m.All {
		if l := h.onLocked(compute.DeviceNum(from), whole); l != nil {
			b, err := l.Buffers[from].CopyToDevice(h.backend.machine.Life, m.All[num])
			if errors.Is(err, errors.ErrUnsupported) {
				break // by way of the host
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
	return to, m.PutPart(h.backend.machine.Life, whole, int(num), tensor, &scratch, to.Buffers)
}

// CopyToDevice makes a buffer of the same value for another device.
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
