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
type Buffer struct{ held *held }

var _ compute.Buffer = (*Buffer)(nil)

// held is what a Buffer holds: the part of it that its cleanup may hold on to.
type held struct {
	backend *Backend
	shape   shapes.Shape
	num     compute.DeviceNum

	mu   sync.Mutex
	host []byte  // row-major, as the plugin takes it; nil if the value is on devices only
	laid []*laid // the layouts that it is in, the last used first
	// later is the value ahead of time, if it is a program's result.
	later *later
	gone  error // why it cannot be used
	// users is how many executions are taking the value as it is, and taken whether one takes it for
	// good; see claim.go.
	users int
	taken bool
	idle  *sync.Cond // told when users is 0; nil until somebody waits
}

// laid is a tensor on the devices, or whole on one of them.
type laid struct {
	layout *mesh.Layout
	mesh.Buffers
}

// has reports whether a partition has its part.
func (l *laid) has(partition int) bool { return l.Buffers[partition] != nil }

// layouts is in how many layouts a tensor is kept at most.
const layouts = 2

// newBuffer takes charge of what h holds.
func (b *Backend) newBuffer(h *held) (*Buffer, error) {
	if err := b.holds.Track(h); err != nil {
		return nil, err
	}
	out := &Buffer{held: h}
	// GoMLX drops buffers without Finalize as a matter of course.
	runtime.AddCleanup(out, func(h *held) { _ = h.backend.holds.Free(h) }, h)
	return out, nil
}

// Close frees what is held.
func (h *held) Close() error { return h.end(ErrFinalized) }

// end frees what is held, for a reason.
func (h *held) end(why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return nil
	}
	h.gone, h.host = why, nil
	var errs []error
	for _, l := range h.laid {
		errs = append(errs, l.Close())
	}
	h.laid, h.later = nil, nil
	return errors.Join(errs...)
}

// Backend returns the backend that owns the buffer.
func (b *Buffer) Backend() compute.Backend { return b.held.backend }

// Finalize frees the buffer's memory. Finalizing twice, or a donated buffer, does nothing.
func (b *Buffer) Finalize() error { return b.held.backend.holds.Free(b.held) }

// Shape returns the buffer's shape, also of a freed one.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.held.shape.Clone(), nil }

// DeviceNum returns the device that the buffer was made for. Device 0 stands for all of them.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return b.held.num, nil }

// Data returns an error matching errors.ErrUnsupported: memory of devices is reached by copies only.
func (b *Buffer) Data() (any, error) {
	return nil, &errkind.Fault{Op: "gomlx: direct access to a buffer", Hint: "use ToFlatData", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// ToFlatData waits for the buffer's value and copies it into flat, a Go slice of the dtype's Go
// type and of the shape's size. Each part is read once, wherever it is held.
func (b *Buffer) ToFlatData(flat any) error {
	err := b.held.toFlat(flat)
	runtime.KeepAlive(b)
	if err != nil {
		return failed("read", fmt.Sprintf("of %s", b.held.shape), err)
	}
	return nil
}

func (h *held) toFlat(flat any) error {
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
func (h *held) read(dst []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	return h.readLocked(dst)
}

func (h *held) readLocked(dst []byte) error {
	switch {
	case h.gone != nil:
		return h.gone
	case h.host != nil:
		copy(dst, h.host)
		return nil
	case h.later != nil:
		tensor, err := h.later.get()
		copy(dst, tensor)
		return err
	}
	for _, l := range h.laid {
		if from, _, ok := h.backend.machine.Sources(l.layout, 0, l.has, false); ok {
			return h.backend.machine.Get(h.backend.machine.Life, l.layout, l.Buffers, from, dst)
		}
	}
	whole, err := h.backend.everywhere(h.laid[0], h.shape)
	if err != nil {
		return err
	}
	from, _, _ := h.backend.machine.Sources(whole.layout, 0, nil, true)
	return errors.Join(h.backend.machine.Get(h.backend.machine.Life, whole.layout, whole.Buffers, from, dst), whole.Close())
}

// bytes returns the value in host memory, which must not be written.
func (h *held) bytes() ([]byte, error) {
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
func (h *held) value() (hostValue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hostValue{h.host, h.later}, h.gone
}

// layLocked brings the value into a layout, if it is not in it, and returns its parts.
func (h *held) layLocked(want *mesh.Layout) (*laid, error) {
	for i, l := range h.laid {
		if l.layout.Same(want) && h.backend.machine.Here(l.Buffers) {
			if i > 0 {
				h.laid[0], h.laid[i] = l, h.laid[0]
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
func (h *held) keepLocked(l *laid) {
	h.laid = append([]*laid{l}, h.laid...)
	h.host = nil
	if h.users > 1 { // somebody else may be about to execute with what would be freed
		return
	}
	for len(h.laid) > layouts {
		last := len(h.laid) - 1
		_ = h.laid[last].Close() // a copy
		h.laid[last], h.laid = nil, h.laid[:last]
	}
}

// whole is the layout of a tensor that is whole on each device.
func (b *Backend) whole(shape shapes.Shape) (*mesh.Layout, error) {
	return b.layout(spmd.Placed{DType: shape.DType, Spec: sharding.Replicated(shape.Rank()), Global: shape.Dimensions})
}

// spread puts the parts of a tensor on the devices of this process.
func (b *Backend) spread(tensor []byte, at *mesh.Layout) (*laid, error) {
	l := &laid{layout: at, Buffers: b.machine.Buffers()}
	if err := b.machine.Put(b.machine.Life, at, func(int) []byte { return tensor }, l.Buffers); err != nil {
		return nil, err
	}
	return l, nil
}

// onLocked returns the value whole on a device, of a layout that the value has.
func (h *held) onLocked(num compute.DeviceNum, whole *mesh.Layout) *laid {
	for _, l := range h.laid {
		if l.has(int(num)) && l.layout.Same(whole) {
			return l
		}
	}
	return nil
}

// aloneLocked copies the value to one device alone.
func (h *held) aloneLocked(num compute.DeviceNum, whole *mesh.Layout) (*laid, error) {
	m := h.backend.machine
	to := &laid{whole, m.Buffers()}
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
	h := b.held
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
	return h.backend.newBuffer(&held{backend: h.backend, shape: h.shape, num: num, laid: []*laid{to}})
}

func (h *held) copyTo(num compute.DeviceNum) (*laid, error) {
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
