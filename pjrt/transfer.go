package pjrt

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// noTransfer says what is wrong with a transfer, before any plugin sees it. The hint may be empty, and
// the cause ErrBusy, ErrClosed or nil.
func noTransfer(op, reason, hint string, cause error) error {
	return &errkind.Fault{Op: "pjrt: " + op, Reason: reason, Hint: hint, Err: cause, Class: errkind.InvalidArgumentError}
}

// zeroByte stands for the data of an empty tensor, whose slice has no address.
var zeroByte byte

// hostShape checks a transfer and answers its shape.
func (c *Client) hostShape(ctx context.Context, op string, data []byte, dtype DType, dims []int, d *Device) (*shape, error) {
	wrong := func(format string, args ...any) error {
		return noTransfer(op, fmt.Sprintf(format, args...), "", nil)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, op)
	}
	switch {
	case d == nil:
		return nil, wrong("no device was given")
	case d.core != c.core:
		return nil, wrong("device %d belongs to another client", d.ID())
	case !d.addressable:
		return nil, wrong("device %d belongs to process %d, this is process %d", d.ID(), d.ProcessIndex(), c.processIndex)
	}
	s := c.lastShape.Load() // the parts of a batch come one after the other, all of one shape
	if s == nil || !s.is(dtype, dims) {
		var err error
		if s, err = newShape(dtype, dims); err != nil {
			return nil, wrong("%v", err)
		}
		c.lastShape.Store(s)
	}
	if len(data) != s.bytes {
		return nil, wrong("%v takes %d bytes, data has %d", s, s.bytes, len(data))
	}
	if minor := dtype.needsMinor(); c.api.Minor < minor {
		return nil, &Error{Op: op, Code: Unimplemented, Plugin: c.path, NeedsMinor: minor,
			Msg: fmt.Sprintf("element type %v needs PJRT 0.%d, the plugin speaks 0.%d", dtype, minor, c.api.Minor)}
	}
	return s, nil
}

func address(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return unsafe.Pointer(&zeroByte)
	}
	return unsafe.Pointer(unsafe.SliceData(data))
}

// BufferFromHost copies data, row-major, to a device of this process. It has read data when it
// returns, so that data can be changed; the transfer itself may still be under way. An element of
// less than a byte takes one byte in data, as an int8 if its type is signed. The buffer is the
// caller's to Close. A wrong length, type, shape or device gives an InvalidArgumentError.
func (c *Client) BufferFromHost(ctx context.Context, data []byte, dtype DType, dims []int, d *Device) (*Buffer, error) {
	const op = "buffer from host"
	s, err := c.hostShape(ctx, op, data, dtype, dims, d)
	if err != nil {
		return nil, err
	}
	h, err := c.copyFromHost(op, data, s, d)
	if err != nil {
		return nil, err
	}
	return newBuffer(c.core, h, s, d, nil), nil
}

// copyFromHost makes a C buffer, which comes with a reference to the client.
func (c *Client) copyFromHost(op string, data []byte, s *shape, d *Device) (capi.Buffer, error) {
	if err := c.retain(childBuffer); err != nil {
		return nil, fail(op, "", err)
	}
	h, err := c.api.BufferFromHost(c.c, address(data), int(s.dtype), s.dims, d.handle)
	if err != nil {
		c.release(childBuffer)
		return nil, c.wrap(op, err)
	}
	return h, nil
}

// RefillFromHost copies data to a device, as [Client.BufferFromHost] does, into a Go Buffer that is
// closed or donated. It is for loops that want no new Go objects: if shape and type are as before,
// it allocates none. A live Buffer gives an error that matches [ErrBusy].
func (c *Client) RefillFromHost(ctx context.Context, into *Buffer, data []byte, dtype DType, dims []int, d *Device) error {
	const op = "refill from host"
	if into == nil || into.core != c.core {
		return noTransfer(op, "the buffer to fill is nil or of another client", "", nil)
	}
	s, err := c.refillShape(ctx, op, into, data, dtype, dims, d)
	if err != nil {
		return err
	}
	before, err := into.acquireEmpty()
	if err != nil {
		return noTransfer(op, fmt.Sprintf("%v is live", into), "close it first", err)
	}
	h, err := c.copyFromHost(op, data, s, d)
	if err != nil {
		into.settle(before)
		return err
	}
	live.Count(live.Buffer, 1)
	into.fill(h, s, d, nil)
	return nil
}

// refillShape is hostShape, but takes the buffer's shape if it is the same.
func (c *Client) refillShape(ctx context.Context, op string, into *Buffer, data []byte, dtype DType, dims []int, d *Device) (*shape, error) {
	s := into.shape.Load()
	if s.is(dtype, dims) && len(data) == s.bytes && d != nil && d.core == c.core && d.addressable && ctx.Err() == nil {
		return s, nil
	}
	return c.hostShape(ctx, op, data, dtype, dims, d)
}

// Alignment is the multiple, in bytes, at which data for BufferFromHostZeroCopy must start.
const Alignment = 64

// AlignedBytes returns a zeroed slice of n bytes that starts at a multiple of [Alignment].
func AlignedBytes(n int) []byte {
	b := make([]byte, n+Alignment)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (Alignment - 1))
	return b[skip : skip+n : skip+n]
}

// BufferFromHostZeroCopy makes a buffer that may be data itself, if the device can address host
// memory, as the CPU plugin's can. data must start at a multiple of [Alignment] (see
// [AlignedBytes]): a plugin would silently copy other data, so that gives an InvalidArgumentError. data
// must not be written until released is closed, which happens once the buffer is closed and no
// program uses it, or as soon as the plugin has made its own copy. The binding keeps data alive
// that long. [Client.BufferFromHost] always copies.
func (c *Client) BufferFromHostZeroCopy(ctx context.Context, data []byte, dtype DType, dims []int, d *Device) (b *Buffer, released <-chan struct{}, err error) {
	ch := make(chan struct{})
	b, err = c.zeroCopy(ctx, "zero-copy buffer from host", capi.ImmutableZeroCopy, data, dtype, dims, d, func() { close(ch) })
	if err != nil {
		return nil, nil, err
	}
	return b, ch, nil
}

// BufferFromHostInPlace makes a buffer whose memory is data, if the device can address host memory,
// as the CPU plugin's can: then it costs nothing, and programs that the buffer is donated to write
// their result there. data is the buffer's from then on, and has to start at a multiple of
// [Alignment]. free is called once, from another goroutine, when neither the buffer nor a result in
// its memory needs it any more, or as soon as the plugin has made its own copy. After an error data
// is the caller's, and free is not called.
func (c *Client) BufferFromHostInPlace(ctx context.Context, data []byte, dtype DType, dims []int, d *Device, free func()) (*Buffer, error) {
	return c.zeroCopy(ctx, "buffer from host in place", capi.MutableZeroCopy, data, dtype, dims, d, free)
}

// zeroCopy makes a buffer that may be data itself.
func (c *Client) zeroCopy(ctx context.Context, op string, semantics int, data []byte, dtype DType, dims []int, d *Device, released func()) (*Buffer, error) {
	s, err := c.hostShape(ctx, op, data, dtype, dims, d)
	if err != nil {
		return nil, err
	}
	p := address(data)
	if off := uintptr(p) % Alignment; off != 0 && len(data) > 0 {
		return nil, noTransfer(op, fmt.Sprintf("data starts %d bytes after a multiple of %d", off, Alignment), "allocate it with AlignedBytes, or use BufferFromHost", nil)
	}
	if err := c.retain(childBuffer); err != nil {
		return nil, fail(op, "", err)
	}
	pin := new(runtime.Pinner)
	pin.Pin(p)
	h, done, err := c.api.BufferFromHostZeroCopy(c.c, p, int(dtype), s.dims, d.handle, semantics)
	if err != nil {
		pin.Unpin()
		c.release(childBuffer)
		return nil, c.wrap(op, err)
	}
	if err := c.notify(done, func(error) { pin.Unpin(); released() }); err != nil {
		// Not reachable while the pipe works; the pin is kept, as the plugin may read.
		_ = newBuffer(c.core, h, s, d, nil).Close()
		return nil, c.wrap(op, err)
	}
	return newBuffer(c.core, h, s, d, nil), nil
}

// ToHost copies the contents, row-major, into dst, whose length must be [Buffer.Bytes], and returns
// when they are there. ctx bounds the wait for the contents to be made; once they move, ToHost
// waits for them, so that dst is never written after it returned.
func (b *Buffer) ToHost(ctx context.Context, dst []byte) error {
	const op = "buffer to host"
	if err := b.Ready(ctx); err != nil {
		return err
	}
	if err := b.acquire(); err != nil {
		return fail(op, b.String(), err)
	}
	defer b.release()
	s := b.shape.Load()
	if len(dst) != s.bytes {
		return noTransfer(op, fmt.Sprintf("%v takes %d bytes, dst has %d", s, s.bytes, len(dst)), "", nil)
	}
	if len(dst) == 0 {
		return nil
	}
	if err := b.core.api.BufferToHost(b.h.c, len(s.dims), address(dst), len(dst)); err != nil {
		return b.core.wrap(op, err)
	}
	signExtend(dst, s.dtype)
	return nil
}

// signExtend makes int8 values of S1, S2 and S4, as plugins differ on the upper bits.
func signExtend(data []byte, dtype DType) {
	switch dtype {
	case S1, S2, S4:
		shift := 8 - dtype.Bits()
		for i, v := range data {
			data[i] = byte(int8(v<<shift) >> shift)
		}
	}
}

// CopyToDevice starts a copy to another addressable device of the client, and returns the copy,
// which is the caller's to Close.
func (b *Buffer) CopyToDevice(ctx context.Context, d *Device) (*Buffer, error) {
	const op = "copy to device"
	if d == nil || d.core != b.core || !d.addressable {
		return nil, noTransfer(op, "the device is nil, of another client, or of another process", "", nil)
	}
	return b.copyTo(ctx, op, d, nil, func(h capi.Buffer) (capi.Buffer, error) { return b.core.api.BufferToDevice(h, d.handle) })
}

// CopyToMemory starts a copy to another memory, such as "pinned_host", and returns the copy, which
// is the caller's to Close.
func (b *Buffer) CopyToMemory(ctx context.Context, m *Memory) (*Buffer, error) {
	const op = "copy to memory"
	if m == nil || m.core != b.core || len(m.devices) == 0 {
		return nil, noTransfer(op, "the memory is nil, of another client, or of no device", "", nil)
	}
	d := b.Device()
	if !slices.Contains(m.devices, d) {
		d = m.devices[0]
	}
	return b.copyTo(ctx, op, d, m, func(h capi.Buffer) (capi.Buffer, error) { return b.core.api.BufferToMemory(h, m.handle) })
}

func (b *Buffer) copyTo(ctx context.Context, op string, d *Device, m *Memory, f func(capi.Buffer) (capi.Buffer, error)) (*Buffer, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx, op)
	}
	if err := b.acquire(); err != nil {
		return nil, fail(op, b.String(), err)
	}
	defer b.release()
	if err := b.core.retain(childBuffer); err != nil {
		return nil, fail(op, "", err)
	}
	h, err := f(b.h.c)
	if err != nil {
		b.core.release(childBuffer)
		return nil, b.core.wrap(op, err)
	}
	return newBuffer(b.core, h, b.shape.Load(), d, m), nil
}
