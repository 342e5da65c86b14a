package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/holdings"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Buffer is a tensor on a device. It holds the device's memory until Finalize, until it is donated
// to an execution, or until the backend's Finalize; the garbage collector frees a forgotten one.
type Buffer struct {
	backend *Backend
	buf     *pjrt.Buffer
	shape   shapes.Shape
	num     compute.DeviceNum
}

var _ compute.Buffer = (*Buffer)(nil)

// tracked is a resource with the backend that keeps it: what a cleanup needs to free it.
type tracked struct {
	backend  *Backend
	resource holdings.Resource
}

// newBuffer takes charge of buf.
func (b *Backend) newBuffer(buf *pjrt.Buffer, shape shapes.Shape, num compute.DeviceNum) (*Buffer, error) {
	if err := b.holds.Track(buf); err != nil {
		return nil, err
	}
	out := &Buffer{backend: b, buf: buf, shape: shape, num: num}
	// GoMLX drops buffers without Finalize as a matter of course.
	runtime.AddCleanup(out, func(t tracked) { _ = t.backend.holds.Free(t.resource) }, tracked{b, buf})
	return out, nil
}

// Backend returns the backend that owns the buffer.
func (b *Buffer) Backend() compute.Backend { return b.backend }

// PJRT returns the buffer below. It stays this Buffer's to close.
func (b *Buffer) PJRT() *pjrt.Buffer { return b.buf }

// Finalize frees the device's memory. Finalizing twice, or a donated buffer, does nothing.
func (b *Buffer) Finalize() error { return b.backend.holds.Free(b.buf) }

// Shape returns the buffer's shape, also of a freed one.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.shape.Clone(), nil }

// DeviceNum returns the device that holds the buffer.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return b.num, nil }

// ToFlatData waits for the buffer's value and copies it into flat, a Go slice of the dtype's Go
// type and of the shape's size.
func (b *Buffer) ToFlatData(flat any) error {
	err := b.toFlat(flat)
	runtime.KeepAlive(b)
	if err != nil {
		return failed("read", fmt.Sprintf("of %s from device %d", b.shape, b.num), err)
	}
	return nil
}

func (b *Buffer) toFlat(flat any) error {
	if err := b.backend.holds.Check(); err != nil {
		return err
	}
	dst, err := hostdata.Bytes(flat, b.shape.DType, b.shape.Size())
	if err != nil {
		return err
	}
	if !b.shape.DType.IsPacked() {
		return b.buf.ToHost(context.Background(), dst)
	}
	values := make([]byte, b.shape.Size())
	if err := b.buf.ToHost(context.Background(), values); err != nil {
		return err
	}
	hostdata.Pack(dst, values, b.shape.DType)
	return nil
}

// Data returns an error matching errors.ErrUnsupported: memory of the device is reached by copies
// only.
func (b *Buffer) Data() (any, error) {
	return nil, &errkind.Fault{Op: "backend: direct access to a buffer", Hint: "use ToFlatData", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// CopyToDevice copies the buffer to another device, without a way through the host where the
// devices are connected.
func (b *Buffer) CopyToDevice(num compute.DeviceNum) (compute.Buffer, error) {
	dev, err := b.backend.device(num)
	if err != nil {
		return nil, err
	}
	if num == b.num {
		return nil, fault(fmt.Sprintf("copy of %s", b.shape), fmt.Sprintf("device %d holds it already", num), "use the buffer as it is")
	}
	if err := b.backend.holds.Check(); err != nil {
		return nil, err
	}
	buf, err := b.buf.CopyToDevice(context.Background(), dev)
	runtime.KeepAlive(b)
	if err != nil {
		return nil, failed("copy", fmt.Sprintf("of %s to device %d", b.shape, num), err)
	}
	return b.backend.newBuffer(buf, b.shape, num)
}
