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

// Buffer is a tensor in the memory of one device. Its contents may still be on their way; Ready
// waits for them.
//
// A Buffer is live, donated or closed. A program takes a donated buffer over; a closed buffer has
// given its memory back. Either can be filled again, by Execute as a result or by RefillFromHost,
// and is live then: so a step loop needs no new Go objects.
//
// All methods may be called at any time from any goroutine. Calls that read share a buffer.
// Donation and refilling need it for themselves, and fail with [ErrBusy] otherwise. Close never
// disturbs a call under way: the memory is given back when the last such call returns.
type Buffer struct {
	core  *core
	word  atomic.Uint32
	claim atomic.Uint64 // the launch that holds the buffer alone; see execute.go
	shape atomic.Pointer[shape]
	dev   atomic.Pointer[Device]
	mem   atomic.Pointer[Memory]
	h     *bufferHandle
}

// bufferHandle is what the garbage collector's cleanup sees of a Buffer. c is set while the buffer
// is live and written only by who holds it alone.
type bufferHandle struct {
	core *core
	c    capi.Buffer
}

// The state word: a number of users, and flags. A buffer that is neither closed nor donated is
// live. exclusive is held by one call alone; closing is a Close that waits for the users to leave.
const (
	bufExclusive uint32 = 1 << (31 - iota)
	bufClosing
	bufClosed
	bufDonated
	bufUsers = 1<<28 - 1
)

// newBuffer wraps a live handle. The caller holds a reference to the client for it (childBuffer),
// which the buffer takes over.
func newBuffer(c *core, handle capi.Buffer, s *shape, d *Device, m *Memory) *Buffer {
	b := &Buffer{core: c, h: &bufferHandle{c, handle}}
	b.shape.Store(s)
	b.dev.Store(d)
	b.mem.Store(m)
	live.Add(live.Buffer, unsafe.Pointer(handle))
	runtime.AddCleanup(b, (*bufferHandle).reclaim, b.h)
	return b
}

// reclaim ends a buffer that was dropped without Close.
func (h *bufferHandle) reclaim() {
	if h.c != nil {
		live.Reclaimed(live.Buffer, unsafe.Pointer(h.c))
		_ = h.destroy()
	}
}

// destroy gives the C buffer back, and the reference to the client.
func (h *bufferHandle) destroy() error {
	live.Remove(live.Buffer, unsafe.Pointer(h.c))
	err := h.core.api.BufferDestroy(h.c)
	h.c = nil
	h.core.release(childBuffer)
	return err
}

// stateError says why a word keeps a call out, or nil.
func stateError(w uint32) error {
	switch {
	case w&(bufClosed|bufClosing) != 0:
		return ErrClosed
	case w&bufDonated != 0:
		return ErrDonated
	case w&bufExclusive != 0:
		return ErrBusy
	}
	return nil
}

// acquire enters a live buffer as one of several users.
func (b *Buffer) acquire() error {
	if b.core == nil {
		return ErrClosed // a zero value
	}
	for {
		w := b.word.Load()
		if w&^bufUsers != 0 {
			return stateError(w)
		}
		if b.word.CompareAndSwap(w, w+1) {
			return nil
		}
	}
}

// release leaves; the last user after a Close ends the buffer.
func (b *Buffer) release() {
	if w := b.word.Add(^uint32(0)); w == bufClosing && b.word.CompareAndSwap(w, bufExclusive|bufClosing) {
		_ = b.h.destroy()
		b.word.Store(bufClosed)
	}
}

// acquireAlone enters a live buffer as its only user.
func (b *Buffer) acquireAlone() error {
	if b.word.CompareAndSwap(0, bufExclusive) {
		return nil
	}
	return b.occupied()
}

// occupied says why acquireAlone failed.
func (b *Buffer) occupied() error {
	if err := stateError(b.word.Load()); err != nil {
		return err
	}
	return ErrBusy
}

// acquireEmpty enters a closed or donated buffer as its only user and answers the state to settle
// to if nothing comes of it.
func (b *Buffer) acquireEmpty() (state uint32, err error) {
	if b.core == nil {
		return 0, ErrClosed
	}
	for {
		w := b.word.Load()
		if w != bufClosed && w != bufDonated {
			return 0, ErrBusy
		}
		if b.word.CompareAndSwap(w, w|bufExclusive) {
			return w, nil
		}
	}
}

// fill puts a new handle into a buffer that the caller holds alone, with a reference to the client,
// and makes it live. The caller counts it.
func (b *Buffer) fill(handle capi.Buffer, s *shape, d *Device, m *Memory) {
	live.Track(live.Buffer, unsafe.Pointer(handle))
	b.h.c = handle
	if b.shape.Load() != s {
		b.shape.Store(s)
	}
	if b.dev.Load() != d {
		b.dev.Store(d)
	}
	if b.mem.Load() != m {
		b.mem.Store(m)
	}
	b.settle(0)
}

// settle ends exclusive use: state is 0 (live), bufDonated or bufClosed. A Close that came
// meanwhile takes effect now.
func (b *Buffer) settle(state uint32) {
	for {
		w := b.word.Load()
		if w&bufClosing != 0 {
			if state == 0 {
				_ = b.h.destroy()
			}
			b.word.Store(bufClosed)
			return
		}
		if b.word.CompareAndSwap(w, state) {
			return
		}
	}
}

// Close gives the memory back once the calls that use the buffer have returned; programs already
// enqueued keep what they need. Closing twice, or closing a donated buffer, does nothing.
func (b *Buffer) Close() error {
	if b == nil || b.core == nil {
		return nil
	}
	for {
		w := b.word.Load()
		switch {
		case w&(bufClosing|bufClosed) != 0:
			if w&bufExclusive != 0 && w&bufClosing == 0 {
				// Being refilled: the new contents are to go.
				if b.word.CompareAndSwap(w, w|bufClosing) {
					return nil
				}
				continue
			}
			return nil
		case w == bufDonated:
			if b.word.CompareAndSwap(w, bufClosed) {
				return nil
			}
		case w == 0:
			if b.word.CompareAndSwap(0, bufExclusive|bufClosing) {
				err := b.h.destroy()
				b.word.Store(bufClosed)
				return b.core.wrap("close buffer", err)
			}
		default:
			if b.word.CompareAndSwap(w, w|bufClosing) {
				return nil
			}
		}
	}
}

// State is the state of a [Buffer] at the time of a call.
type State int

// The states of a buffer.
const (
	Live State = iota
	Donated
	Closed
)

// String returns "live", "donated" or "closed".
func (s State) String() string { return enum.Name(s, "live", "donated", "closed") }

// State reports whether the buffer is live, donated or closed. The zero Buffer is closed.
func (b *Buffer) State() State {
	if b.core == nil {
		return Closed
	}
	switch w := b.word.Load(); {
	case w&(bufClosed|bufClosing) != 0:
		return Closed
	case w&bufDonated != 0:
		return Donated
	}
	return Live
}

// DType returns the element type. A donated or closed buffer keeps that of its last contents.
func (b *Buffer) DType() DType { return b.known().dtype }

// Dims returns the dimensions, major first. A donated or closed buffer keeps those of its last
// contents. The slice is shared between buffers: do not write to it. (Execute has a copy of its
// own, so a write cannot defeat its checks.)
func (b *Buffer) Dims() []int { return b.known().view }

// Bytes returns the size of the contents in host memory, in bytes and row-major: the length that
// ToHost wants.
func (b *Buffer) Bytes() int { return b.known().bytes }

// known is the shape; that of the zero Buffer is of no dtype.
func (b *Buffer) known() *shape {
	if s := b.shape.Load(); s != nil {
		return s
	}
	return &shape{}
}

// Device returns the device where the buffer lives, or lived.
func (b *Buffer) Device() *Device { return b.dev.Load() }

// Memory returns the memory that the buffer lives in. For a donated or closed buffer it returns the
// device's default memory, unless the buffer's own was known before; nil if the plugin names no
// memories.
func (b *Buffer) Memory() *Memory {
	if m := b.mem.Load(); m != nil {
		return m
	}
	if b.acquire() == nil {
		defer b.release()
		if h, err := b.core.api.BufferMemory(b.h.c); err == nil {
			if m := b.core.memories[h]; m != nil {
				b.mem.Store(m)
				return m
			}
		}
	}
	if d := b.dev.Load(); d != nil {
		return d.defaultMemory
	}
	return nil
}

// String returns a text such as "F32[2,8] on device 3".
func (b *Buffer) String() string {
	if b.core == nil {
		return "a buffer that no client made"
	}
	s := fmt.Sprintf("%v on device %d", b.shape.Load(), b.dev.Load().ID())
	if state := b.State(); state != Live {
		s += " (" + state.String() + ")"
	}
	return s
}

// use runs f on the live C buffer.
func (b *Buffer) use(op string, f func() error) error {
	if err := b.acquire(); err != nil {
		return fail(op, b.String(), err)
	}
	defer b.release()
	return b.core.wrap(op, f())
}

// OnDeviceSize returns the size on the device in bytes, with padding.
func (b *Buffer) OnDeviceSize() (n int, err error) {
	err = b.use("buffer size", func() error {
		n, err = b.core.api.BufferSize(b.h.c)
		return err
	})
	return n, err
}

// poll asks for the contents: either they are there, with the error of the work that made them, or
// there is an event to wait for.
func (b *Buffer) poll(op string) (capi.Event, error) {
	if err := b.acquire(); err != nil {
		return nil, fail(op, b.String(), err)
	}
	event, err := b.core.api.BufferPoll(b.h.c)
	b.release()
	return event, b.core.wrap(op, err)
}

// IsReady reports, without waiting, whether the contents are there. The error is that of the work
// that was to make them.
func (b *Buffer) IsReady() (bool, error) {
	event, err := b.poll("poll buffer")
	if event != nil {
		b.core.api.EventDestroy(event)
		return false, nil
	}
	return err == nil, err
}

// Ready waits until the contents are there, and returns the error of the work that made them. If
// ctx ends first, Ready returns its cause, and the work goes on. A buffer that is closed or donated
// meanwhile does not end the wait. Nothing is allocated, but for a wait that ctx ends.
func (b *Buffer) Ready(ctx context.Context) error {
	// The reference keeps the client open while only the event is held.
	if err := b.core.retain(childCall); err != nil {
		return fail("wait", b.String(), err)
	}
	defer b.core.release(childCall)
	event, err := b.poll("wait")
	if event == nil {
		return err
	}
	if err := b.core.wait(ctx, event); err != nil {
		return b.core.wrap("wait", err)
	}
	return nil
}
