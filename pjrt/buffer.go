package pjrt

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Buffer is a tensor in the memory of one device. The work that computes its contents may still be
// running; Ready waits for it.
//
// A Buffer is live, donated or closed. Donating a buffer transfers its memory to a program; closing
// a buffer frees its memory. A donated or closed Buffer can be refilled, by Execute as a result or
// by RefillFromHost, and is then live again. A step loop can therefore reuse its Go objects.
//
// All methods are safe for concurrent use. Calls that only read a buffer can run at the same time.
// Donating or refilling a buffer requires exclusive use, and fails with [ErrBusy] while another
// call uses the buffer. Close does not disturb running calls: the memory is freed when the last of
// them returns.
type Buffer struct {
	core   *clientHandle
	status atomic.Uint32
	owner  atomic.Uint64 // id of the launch that uses the buffer exclusively; see arguments.go
	shape  atomic.Pointer[shape]
	device atomic.Pointer[Device]
	memory atomic.Pointer[Memory]
	handle *bufferHandle
}

// bufferHandle owns the C buffer of a Buffer. It has no pointer to the Buffer, so that the garbage
// collector can detect that the Buffer is unreachable. c is nil unless the buffer is live, and
// changes only during exclusive use.
type bufferHandle struct {
	core *clientHandle
	c    capi.Buffer
}

// These are the bits of Buffer.status. The low bits count the calls that share the buffer.
// bufExclusive is set while one call uses the buffer exclusively, and bufClosing while Close waits
// for running calls. A buffer that is neither closed nor donated is live.
const (
	bufExclusive uint32 = 1 << (31 - iota)
	bufClosing
	bufClosed
	bufDonated
	bufUserMask = 1<<28 - 1
)

// newBuffer returns a Buffer that owns a live C buffer. The caller must have registered the buffer
// as a dependent of the client.
func newBuffer(c *clientHandle, handle capi.Buffer, s *shape, d *Device, m *Memory) *Buffer {
	b := &Buffer{core: c, handle: &bufferHandle{c, handle}}
	b.shape.Store(s)
	b.device.Store(d)
	b.memory.Store(m)
	live.Add(live.Buffer, unsafe.Pointer(handle))
	runtime.AddCleanup(b, (*bufferHandle).reclaim, b.handle)
	return b
}

// reclaim frees a buffer that became unreachable without Close.
func (h *bufferHandle) reclaim() {
	if h.c != nil {
		live.MarkReclaimed(live.Buffer, unsafe.Pointer(h.c))
		_ = h.destroy()
	}
}

// destroy frees the C buffer and releases the client.
func (h *bufferHandle) destroy() error {
	live.Remove(live.Buffer, unsafe.Pointer(h.c))
	err := h.core.api.BufferDestroy(h.c)
	h.c = nil
	h.core.release(dependentBuffer)
	return err
}

// stateError returns an error if a buffer with the given status cannot be used exclusively.
func stateError(status uint32) error {
	switch {
	case status&(bufClosed|bufClosing) != 0:
		return errBufferClosed
	case status&bufDonated != 0:
		return ErrDonated
	case status&bufExclusive != 0:
		return ErrBusy
	}
	return nil
}

// acquire registers a call that shares a live buffer with other calls. It fails if the buffer is
// closed, donated or used exclusively.
func (b *Buffer) acquire() error {
	if b.core == nil {
		return ErrClosed // a zero value
	}
	for {
		w := b.status.Load()
		if w&^bufUserMask != 0 {
			return stateError(w)
		}
		if b.status.CompareAndSwap(w, w+1) {
			return nil
		}
	}
}

// release undoes acquire. The last call after a Close frees the buffer.
func (b *Buffer) release() {
	if w := b.status.Add(^uint32(0)); w == bufClosing && b.status.CompareAndSwap(w, bufExclusive|bufClosing) {
		_ = b.handle.destroy()
		b.status.Store(bufClosed)
	}
}

// acquireExclusive registers a call that uses a live buffer exclusively. It fails while another
// call uses the buffer.
func (b *Buffer) acquireExclusive() error {
	if b.status.CompareAndSwap(0, bufExclusive) {
		return nil
	}
	return b.exclusiveError()
}

func (b *Buffer) exclusiveError() error {
	if err := stateError(b.status.Load()); err != nil {
		return err
	}
	return ErrBusy
}

// acquireForRefill registers a call that uses a closed or donated buffer exclusively, and returns
// the previous status of the buffer. If the call does not fill the buffer, it must restore the
// status with releaseExclusive.
func (b *Buffer) acquireForRefill() (state uint32, err error) {
	if b.core == nil {
		return 0, ErrClosed
	}
	for {
		w := b.status.Load()
		if w != bufClosed && w != bufDonated {
			return 0, ErrBusy
		}
		if b.status.CompareAndSwap(w, w|bufExclusive) {
			return w, nil
		}
	}
}

// fill stores a new C buffer in b and makes b live. The caller must use b exclusively, must have
// acquired the client, and must update the count of live buffers.
func (b *Buffer) fill(handle capi.Buffer, s *shape, d *Device, m *Memory) {
	live.Track(live.Buffer, unsafe.Pointer(handle))
	b.handle.c = handle
	if b.shape.Load() != s {
		b.shape.Store(s)
	}
	if b.device.Load() != d {
		b.device.Store(d)
	}
	if b.memory.Load() != m {
		b.memory.Store(m)
	}
	b.releaseExclusive(0)
}

// releaseExclusive ends exclusive use and sets the status, which is 0 (live), bufDonated or
// bufClosed. If Close was called during the exclusive use, the buffer is closed instead.
func (b *Buffer) releaseExclusive(state uint32) {
	for {
		w := b.status.Load()
		if w&bufClosing != 0 {
			if state == 0 {
				_ = b.handle.destroy()
			}
			b.status.Store(bufClosed)
			return
		}
		if b.status.CompareAndSwap(w, state) {
			return
		}
	}
}

// Close frees the memory of the buffer when no call uses the buffer any more. Programs that are
// already enqueued can still use the memory. Closing a closed or donated buffer has no effect.
func (b *Buffer) Close() error {
	if b == nil || b.core == nil {
		return nil
	}
	for {
		w := b.status.Load()
		switch {
		case w&(bufClosing|bufClosed) != 0:
			if w&bufExclusive != 0 && w&bufClosing == 0 {
				// The buffer is being refilled; releaseExclusive discards the new contents.
				if b.status.CompareAndSwap(w, w|bufClosing) {
					return nil
				}
				continue
			}
			return nil
		case w == bufDonated:
			if b.status.CompareAndSwap(w, bufClosed) {
				return nil
			}
		case w == 0:
			if b.status.CompareAndSwap(0, bufExclusive|bufClosing) {
				err := b.handle.destroy()
				b.status.Store(bufClosed)
				return b.core.wrapError("close buffer", err)
			}
		default:
			if b.status.CompareAndSwap(w, w|bufClosing) {
				return nil
			}
		}
	}
}

// State is the state of a [Buffer].
type State int

// The states of a buffer.
const (
	Live State = iota
	Donated
	Closed
)

// String returns "live", "donated" or "closed".
func (s State) String() string { return enum.Name(s, "live", "donated", "closed") }

// State returns the state of the buffer. The zero Buffer is closed.
func (b *Buffer) State() State {
	if b.core == nil {
		return Closed
	}
	switch w := b.status.Load(); {
	case w&(bufClosed|bufClosing) != 0:
		return Closed
	case w&bufDonated != 0:
		return Donated
	}
	return Live
}

// DType returns the element type. For a donated or closed buffer, it is the type of the last contents.
func (b *Buffer) DType() DType { return b.lastShape().dtype }

// Dims returns the dimensions, outermost first. For a donated or closed buffer, they are the
// dimensions of the last contents. The caller must not modify the slice, because buffers share it.
func (b *Buffer) Dims() []int { return b.lastShape().intDims }

// Bytes returns the size of the contents in host memory, in bytes. ToHost requires a destination of
// this length.
func (b *Buffer) Bytes() int { return b.lastShape().hostBytes }

func (b *Buffer) lastShape() *shape {
	if s := b.shape.Load(); s != nil {
		return s
	}
	return &shape{}
}

// Device returns the device of the buffer. For a donated or closed buffer, it is the device of the
// last contents.
func (b *Buffer) Device() *Device { return b.device.Load() }

// Memory returns the memory space that contains the buffer, or nil if the plugin does not report
// memories. For a donated or closed buffer, it returns the memory of the last contents if Memory
// was called while the buffer was live, and the default memory of the device otherwise.
func (b *Buffer) Memory() *Memory {
	if m := b.memory.Load(); m != nil {
		return m
	}
	if b.acquire() == nil {
		defer b.release()
		if h, err := b.core.api.BufferMemory(b.handle.c); err == nil {
			if m := b.core.memories[h]; m != nil {
				b.memory.Store(m)
				return m
			}
		}
	}
	if d := b.device.Load(); d != nil {
		return d.defaultMemory
	}
	return nil
}

// String returns a description such as "F32[2,8] on device 3".
func (b *Buffer) String() string {
	if b.core == nil {
		return "zero-value buffer"
	}
	s := fmt.Sprintf("%v on device %d", b.shape.Load(), b.device.Load().ID())
	if state := b.State(); state != Live {
		s += " (" + state.String() + ")"
	}
	return s
}

// withHandle calls f while the buffer is acquired, so that the C buffer is not freed during the
// call.
func (b *Buffer) withHandle(op string, f func() error) error {
	if err := b.acquire(); err != nil {
		return opError(op, b.String(), err)
	}
	defer b.release()
	return b.core.wrapError(op, f())
}

// OnDeviceSize returns the size of the buffer in device memory in bytes, including padding.
func (b *Buffer) OnDeviceSize() (n int, err error) {
	err = b.withHandle("buffer size", func() error {
		n, err = b.core.api.BufferSize(b.handle.c)
		return err
	})
	return n, err
}

// poll returns an event that becomes ready when the contents are computed. If they are already
// computed, the event is nil, and the error is the error of the computation.
func (b *Buffer) poll(op string) (capi.Event, error) {
	if err := b.acquire(); err != nil {
		return nil, opError(op, b.String(), err)
	}
	event, err := b.core.api.BufferPoll(b.handle.c)
	b.release()
	return event, b.core.wrapError(op, err)
}

// IsReady reports whether the contents are computed. It does not wait. If the computation failed,
// IsReady returns its error.
func (b *Buffer) IsReady() (bool, error) {
	event, err := b.poll("poll buffer")
	if event != nil {
		b.core.api.EventDestroy(event)
		return false, nil
	}
	return err == nil, err
}

// Ready waits until the contents are computed, and returns the error of the computation. If ctx
// ends first, Ready returns the cause of ctx, and the computation continues. Closing or donating
// the buffer does not end the wait. Ready allocates memory only if ctx ends the wait.
func (b *Buffer) Ready(ctx context.Context) error {
	// The event is valid while the client is open.
	if err := b.core.acquire(dependentCall); err != nil {
		return opError("wait", b.String(), err)
	}
	defer b.core.release(dependentCall)
	event, err := b.poll("wait")
	if event == nil {
		return err
	}
	if err := b.core.awaitEvent(ctx, event); err != nil {
		return b.core.wrapError("wait", err)
	}
	return nil
}
