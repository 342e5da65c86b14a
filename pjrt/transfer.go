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

// transferError returns an error of kind InvalidArgumentError for a transfer. cause is ErrBusy,
// ErrClosed or nil.
func transferError(op, reason, hint string, cause error) error {
	return &errkind.Fault{Op: "pjrt: " + op, Reason: reason, Hint: hint, Err: cause,
		Class: errkind.InvalidArgumentError}
}

// zeroByte is the data of empty tensors, because an empty slice may have no address.
var zeroByte byte

// checkHostTransfer validates the arguments of a transfer from host memory and returns the shape of
// the data.
func (c *Client) checkHostTransfer(ctx context.Context, op string, data []byte, dtype DType, dims []int,
	d *Device) (*shape, error) {
	fail := func(format string, args ...any) error {
		return transferError(op, fmt.Sprintf(format, args...), "", nil)
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx, op)
	}
	switch {
	case d == nil:
		return nil, fail("the device is nil")
	case d.core != c.clientHandle:
		return nil, fail("device %d belongs to another client", d.ID())
	case !d.addressable:
		return nil, fail("device %d belongs to process %d, but this is process %d", d.ID(), d.ProcessIndex(),
			c.processIndex)
	}
	s := c.lastHostShape.Load() // consecutive transfers often have equal shapes
	if s == nil || !s.matches(dtype, dims) {
		var err error
		if s, err = newShape(dtype, dims); err != nil {
			return nil, fail("%v", err)
		}
		c.lastHostShape.Store(s)
	}
	if len(data) != s.hostBytes {
		return nil, fail("%v has %d bytes, but data has %d", s, s.hostBytes, len(data))
	}
	if minor := dtype.requiredMinor(); c.api.Minor < minor {
		return nil, &Error{Op: op, Code: Unimplemented, Plugin: c.path, NeedsMinor: minor,
			Msg: fmt.Sprintf("element type %v requires PJRT 0.%d, but the plugin implements 0.%d", dtype, minor,
				c.api.Minor)}
	}
	return s, nil
}

func dataPointer(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return unsafe.Pointer(&zeroByte)
	}
	return unsafe.Pointer(unsafe.SliceData(data))
}

// BufferFromHost copies data, in row-major order, to a device of this process. The caller may
// modify data after the call, although the transfer may still be running. Elements of less than 8
// bits use one byte each; signed elements are stored as int8. The caller must close the buffer. An
// invalid length, type, shape or device is an error of kind InvalidArgumentError.
func (c *Client) BufferFromHost(ctx context.Context, data []byte, dtype DType, dims []int, d *Device) (*Buffer, error) {
	const op = "buffer from host"
	s, err := c.checkHostTransfer(ctx, op, data, dtype, dims, d)
	if err != nil {
		return nil, err
	}
	h, err := c.copyFromHost(op, data, s, d)
	if err != nil {
		return nil, err
	}
	return newBuffer(c.clientHandle, h, s, d, nil), nil
}

// copyFromHost copies data to a new C buffer. The buffer counts as a dependent of the client.
func (c *Client) copyFromHost(op string, data []byte, s *shape, d *Device) (capi.Buffer, error) {
	if err := c.acquire(dependentBuffer); err != nil {
		return nil, opError(op, "", err)
	}
	h, err := c.api.BufferFromHost(c.client, dataPointer(data), int(s.dtype), s.dims, d.handle)
	if err != nil {
		c.release(dependentBuffer)
		return nil, c.wrapError(op, err)
	}
	return h, nil
}

// RefillFromHost is like [Client.BufferFromHost], but stores the result in dst, which must be
// closed or donated. It allocates no Go memory if dst had the same shape and type before. If dst is
// live, the error matches [ErrBusy].
func (c *Client) RefillFromHost(ctx context.Context, dst *Buffer, data []byte, dtype DType, dims []int,
	d *Device) error {
	const op = "refill from host"
	if dst == nil || dst.core != c.clientHandle {
		return transferError(op, "the buffer to refill is nil or belongs to another client", "", nil)
	}
	s, err := c.checkRefill(ctx, op, dst, data, dtype, dims, d)
	if err != nil {
		return err
	}
	status, err := dst.acquireForRefill()
	if err != nil {
		return transferError(op, fmt.Sprintf("%v is live", dst), "close it first", err)
	}
	h, err := c.copyFromHost(op, data, s, d)
	if err != nil {
		dst.releaseExclusive(status)
		return err
	}
	live.AddCount(live.Buffer, 1)
	dst.fill(h, s, d, nil)
	return nil
}

// checkRefill is like checkHostTransfer. If dst already has the shape of the data, checkRefill
// returns the existing shape of dst instead of allocating a new one.
func (c *Client) checkRefill(ctx context.Context, op string, dst *Buffer, data []byte, dtype DType, dims []int,
	d *Device) (*shape, error) {
	s := dst.shape.Load()
	if s.matches(dtype, dims) && len(data) == s.hostBytes && d != nil && d.core == c.clientHandle && d.addressable &&
		ctx.Err() == nil {
		return s, nil
	}
	return c.checkHostTransfer(ctx, op, data, dtype, dims, d)
}

// Alignment is the required alignment of data for BufferFromHostZeroCopy, in bytes.
const Alignment = 64

// AlignedBytes returns a zeroed slice of n bytes whose address is a multiple of [Alignment].
func AlignedBytes(n int) []byte {
	b := make([]byte, n+Alignment)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (Alignment - 1))
	return b[skip : skip+n : skip+n]
}

// BufferFromHostZeroCopy creates a buffer that uses data as its memory if the device can address
// host memory, as the devices of the CPU plugin can. Otherwise the plugin copies data.
// [Client.BufferFromHost] always copies.
//
// The address of data must be a multiple of [Alignment] (see [AlignedBytes]); otherwise the error
// is of kind InvalidArgumentError. The caller must not modify data until the channel released is
// closed. The channel is closed when the buffer is closed and no program uses it, or when the
// plugin has copied data. Until then, the garbage collector does not free data.
func (c *Client) BufferFromHostZeroCopy(ctx context.Context, data []byte, dtype DType, dims []int,
	d *Device) (b *Buffer, released <-chan struct{}, err error) {
	ch := make(chan struct{})
	b, err = c.bufferFromHostZeroCopy(ctx, "zero-copy buffer from host", capi.ImmutableZeroCopy, data, dtype, dims, d,
		func() { close(ch) })
	if err != nil {
		return nil, nil, err
	}
	return b, ch, nil
}

// BufferFromHostInPlace creates a buffer that uses data as its memory if the device can address
// host memory, as the devices of the CPU plugin can. Programs to which such a buffer is donated may
// write their results to data. On other devices, the plugin copies data.
//
// The address of data must be a multiple of [Alignment]. The buffer owns data after the call. free
// is called once, in another goroutine, when no buffer uses the memory any more, or when the plugin
// has copied data. After an error, the caller still owns data, and free is not called.
func (c *Client) BufferFromHostInPlace(ctx context.Context, data []byte, dtype DType, dims []int, d *Device,
	free func()) (*Buffer, error) {
	return c.bufferFromHostZeroCopy(ctx, "buffer from host in place", capi.MutableZeroCopy, data, dtype, dims, d, free)
}

// bufferFromHostZeroCopy implements BufferFromHostZeroCopy and BufferFromHostInPlace.
func (c *Client) bufferFromHostZeroCopy(ctx context.Context, op string, semantics int, data []byte, dtype DType,
	dims []int, d *Device, released func()) (*Buffer, error) {
	s, err := c.checkHostTransfer(ctx, op, data, dtype, dims, d)
	if err != nil {
		return nil, err
	}
	p := dataPointer(data)
	if uintptr(p)%Alignment != 0 && len(data) > 0 {
		return nil, transferError(op, fmt.Sprintf("the address of data is not a multiple of %d", Alignment),
			"allocate it with AlignedBytes, or use BufferFromHost", nil)
	}
	if err := c.acquire(dependentBuffer); err != nil {
		return nil, opError(op, "", err)
	}
	pin := new(runtime.Pinner)
	pin.Pin(p)
	h, done, err := c.api.BufferFromHostZeroCopy(c.client, p, int(dtype), s.dims, d.handle, semantics)
	if err != nil {
		pin.Unpin()
		c.release(dependentBuffer)
		return nil, c.wrapError(op, err)
	}
	if err := c.notify(done, func(error) { pin.Unpin(); released() }); err != nil {
		// Only an error of the pipe is possible here. data stays pinned because the plugin may still read it.
		_ = newBuffer(c.clientHandle, h, s, d, nil).Close()
		return nil, c.wrapError(op, err)
	}
	return newBuffer(c.clientHandle, h, s, d, nil), nil
}

// ToHost copies the contents to dst in row-major order. The length of dst must be [Buffer.Bytes].
// ToHost returns when the copy is complete. ctx limits only the wait until the contents are
// computed, so dst is never written after ToHost has returned.
func (b *Buffer) ToHost(ctx context.Context, dst []byte) error {
	const op = "buffer to host"
	if err := b.Ready(ctx); err != nil {
		return err
	}
	if err := b.acquire(); err != nil {
		return opError(op, b.String(), err)
	}
	defer b.release()
	s := b.shape.Load()
	if len(dst) != s.hostBytes {
		return transferError(op, fmt.Sprintf("%v has %d bytes, but dst has %d", s, s.hostBytes, len(dst)), "", nil)
	}
	if len(dst) == 0 {
		return nil
	}
	if err := b.core.api.BufferToHost(b.handle.c, len(s.dims), dataPointer(dst), len(dst)); err != nil {
		return b.core.wrapError(op, err)
	}
	signExtend(dst, s.dtype)
	return nil
}

// signExtend sets the unused high bits of S1, S2 and S4 values to the sign, because plugins leave
// different values in these bits.
func signExtend(data []byte, dtype DType) {
	switch dtype {
	case S1, S2, S4:
		shift := 8 - dtype.Bits()
		for i, v := range data {
			data[i] = byte(int8(v<<shift) >> shift)
		}
	}
}

// CopyToDevice starts a copy to an addressable device of the same client. The caller must close the
// returned buffer.
func (b *Buffer) CopyToDevice(ctx context.Context, d *Device) (*Buffer, error) {
	const op = "copy to device"
	if d == nil || d.core != b.core || !d.addressable {
		return nil, transferError(op, "the device is nil, or belongs to another client or another process", "", nil)
	}
	return b.copyTo(ctx, op, d, nil, func(h capi.Buffer) (capi.Buffer, error) {
		return b.core.api.BufferToDevice(h, d.handle)
	})
}

// CopyToMemory starts a copy to a memory space of the same client, such as "pinned_host". The
// caller must close the returned buffer.
func (b *Buffer) CopyToMemory(ctx context.Context, m *Memory) (*Buffer, error) {
	const op = "copy to memory"
	if m == nil || m.core != b.core || len(m.devices) == 0 {
		return nil, transferError(op, "the memory is nil, belongs to another client, or is not addressable by a device",
			"", nil)
	}
	d := b.Device()
	if !slices.Contains(m.devices, d) {
		d = m.devices[0]
	}
	return b.copyTo(ctx, op, d, m, func(h capi.Buffer) (capi.Buffer, error) {
		return b.core.api.BufferToMemory(h, m.handle)
	})
}

func (b *Buffer) copyTo(ctx context.Context, op string, d *Device, m *Memory,
	f func(capi.Buffer) (capi.Buffer, error)) (*Buffer, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx, op)
	}
	if err := b.acquire(); err != nil {
		return nil, opError(op, b.String(), err)
	}
	defer b.release()
	if err := b.core.acquire(dependentBuffer); err != nil {
		return nil, opError(op, "", err)
	}
	h, err := f(b.handle.c)
	if err != nil {
		b.core.release(dependentBuffer)
		return nil, b.core.wrapError(op, err)
	}
	return newBuffer(b.core, h, b.shape.Load(), d, m), nil
}
