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

// Buffer is a global tensor. It is in host memory until a program uses it as an input, and then on
// the devices in the layout of that program. Its memory is freed by Finalize, by a donation to an
// execution, by the backend's Finalize, or by the garbage collector. It is safe for concurrent use.
type Buffer struct{ state *bufferState }

var _ compute.Buffer = (*Buffer)(nil)

// bufferState contains the value of a Buffer. It is a separate object, because the Buffer's cleanup
// function must not refer to the Buffer.
type bufferState struct {
	backend   *Backend
	shape     shapes.Shape
	deviceNum compute.DeviceNum

	mu         sync.Mutex
	host       []byte       // row-major, in the plugin's format; nil if the value is only on devices
	placements []*placement // copies of the value in different layouts, most recently used first
	// lazyValue computes the value, if it is a program's result and the backend compiles ahead of
	// time.
	lazyValue lazyBytes
	freedErr  error // not nil if the value was freed: the error of further uses
	// readers is the number of executions that currently read the value. isDonating is true while
	// an execution to which the value is donated is launched. See claim.go.
	readers    int
	isDonating bool
	noReaders  *sync.Cond // signaled when readers becomes 0; nil until an execution waits
}

// placement is a tensor on the devices in one layout. If only one device has the tensor, all other
// buffers are nil.
type placement struct {
	layout *engine.Layout
	engine.Buffers
}

func (p *placement) hasPartition(partition int) bool { return p.Buffers[partition] != nil }

const maxPlacements = 2

func (b *Backend) newBuffer(state *bufferState) (*Buffer, error) {
	if err := b.resources.Track(state); err != nil {
		return nil, err
	}
	out := &Buffer{state: state}
	// GoMLX often drops buffers without calling Finalize.
	runtime.AddCleanup(out, func(state *bufferState) { _ = state.backend.resources.Free(state) }, state)
	return out, nil
}

func (s *bufferState) Close() error { return s.freeWith(errBufferFinalized) }

// freeWith frees the buffer's memory. Later uses of the buffer return the error cause.
func (s *bufferState) freeWith(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freedErr != nil {
		return nil
	}
	s.freedErr, s.host = cause, nil
	var errs []error
	for _, p := range s.placements {
		errs = append(errs, p.Close())
	}
	s.placements, s.lazyValue = nil, nil
	return errors.Join(errs...)
}

// Backend returns the backend that owns the buffer.
func (b *Buffer) Backend() compute.Backend { return b.state.backend }

// Finalize frees the buffer's memory. Finalizing twice, or a donated buffer, does nothing.
func (b *Buffer) Finalize() error { return b.state.backend.resources.Free(b.state) }

// Shape returns the buffer's shape. It also works after the buffer was freed.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.state.shape.Clone(), nil }

// DeviceNum returns the device for which the buffer was created. Device 0 represents all devices.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return b.state.deviceNum, nil }

// Data returns an error matching errors.ErrUnsupported: device memory can only be accessed by
// copying.
func (b *Buffer) Data() (any, error) {
	return nil, &errkind.Fault{Op: "gomlx: direct access to a buffer", Hint: "use ToFlatData",
		Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// ToFlatData waits for the buffer's value and copies it into flat, a Go slice of the dtype's Go
// type with the length of the shape's size. Each shard is transferred once, even if several devices
// have a copy.
func (b *Buffer) ToFlatData(flat any) error {
	err := b.state.copyFlat(flat)
	runtime.KeepAlive(b)
	if err != nil {
		return wrapError("read", fmt.Sprintf("of %s", b.state.shape), err)
	}
	return nil
}

func (s *bufferState) copyFlat(flat any) error {
	if err := s.backend.resources.Check(); err != nil {
		return err
	}
	dst, err := hostdata.Bytes(flat, s.shape.DType, s.shape.Size())
	if err != nil {
		return err
	}
	if !s.shape.DType.IsPacked() {
		return s.readInto(dst)
	}
	values := make([]byte, s.shape.Size())
	if err := s.readInto(values); err != nil {
		return err
	}
	hostdata.Pack(dst, values, s.shape.DType)
	return nil
}

func (s *bufferState) readInto(dst []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkUsable(); err != nil {
		return err
	}
	return s.readLocked(dst)
}

func (s *bufferState) readLocked(dst []byte) error {
	switch {
	case s.freedErr != nil:
		return s.freedErr
	case s.host != nil:
		copy(dst, s.host)
		return nil
	case s.lazyValue != nil:
		tensor, err := s.lazyValue()
		copy(dst, tensor)
		return err
	}
	for _, p := range s.placements {
		if from, _, ok := s.backend.runtime.Sources(p.layout, 0, p.hasPartition, false); ok {
			return s.backend.runtime.GetTensor(s.backend.runtime.Context, p.layout, p.Buffers, from, dst)
		}
	}
	replicated, err := s.backend.replicate(s.placements[0], s.shape)
	if err != nil {
		return err
	}
	from, _, _ := s.backend.runtime.Sources(replicated.layout, 0, nil, true)
	return errors.Join(s.backend.runtime.GetTensor(s.backend.runtime.Context, replicated.layout, replicated.Buffers, from,
		dst),
		replicated.Close())
}

// bytesLocked returns the value in host memory, which must not be modified. s.mu must be held.
func (s *bufferState) bytesLocked() ([]byte, error) {
	if s.host != nil {
		return s.host, nil
	}
	t, err := hostdata.PJRTType(s.shape.DType)
	if err != nil {
		return nil, err
	}
	out := make([]byte, t.HostBytes()*s.shape.Size())
	return out, s.readLocked(out)
}

// lazyReader returns a function that returns the bytes of the value. It is used on backends that
// compile ahead of time, where values are in host memory or not computed yet.
func (s *bufferState) lazyReader() (lazyBytes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lazyValue != nil {
		return s.lazyValue, s.freedErr
	}
	host := s.host
	return func() ([]byte, error) { return host, nil }, s.freedErr
}

// reshardLocked returns the value in the given layout. It transfers the value again only if no copy
// on the devices has this layout.
func (s *bufferState) reshardLocked(layout *engine.Layout) (*placement, error) {
	for i, p := range s.placements {
		if p.layout.HasSameShards(layout) && s.backend.runtime.HasAllBuffers(p.Buffers) {
			if i > 0 {
				s.placements[0], s.placements[i] = p, s.placements[0]
			}
			return p, nil
		}
	}
	if s.host == nil && s.lazyValue == nil {
		s.backend.reshardCount.Add(1)
	}
	tensor, err := s.bytesLocked()
	if err != nil {
		return nil, err
	}
	p, err := s.backend.transfer(tensor, layout)
	if err != nil {
		return nil, err
	}
	s.addPlacementLocked(p)
	return p, nil
}

// addPlacementLocked adds a copy of the value in another layout. If no other execution reads the
// value, it frees the least recently used copies in excess of maxPlacements.
func (s *bufferState) addPlacementLocked(p *placement) {
	s.placements = append([]*placement{p}, s.placements...)
	s.host = nil
	if s.readers > 1 { // another execution may be about to use the placement that would be freed
		return
	}
	for len(s.placements) > maxPlacements {
		last := len(s.placements) - 1
		_ = s.placements[last].Close() // a copy
		s.placements[last], s.placements = nil, s.placements[:last]
	}
}

func (b *Backend) replicatedLayout(shape shapes.Shape) (*engine.Layout, error) {
	return b.layout(spmd.ShardedTensor{DType: shape.DType, Spec: sharding.Replicated(shape.Rank()),
		GlobalDims: shape.Dimensions})
}

func (b *Backend) transfer(tensor []byte, layout *engine.Layout) (*placement, error) {
	p := &placement{layout: layout, Buffers: b.runtime.Buffers()}
	if err := b.runtime.PutTensor(b.runtime.Context, layout, func(int) []byte { return tensor }, p.Buffers); err != nil {
		return nil, err
	}
	return p, nil
}

// findOnDeviceLocked returns a replicated placement that has a copy on device num, or nil.
func (s *bufferState) findOnDeviceLocked(num compute.DeviceNum, replicated *engine.Layout) *placement {
	for _, p := range s.placements {
		if p.hasPartition(int(num)) && p.layout.HasSameShards(replicated) {
			return p
		}
	}
	return nil
}

func (s *bufferState) copyToDeviceLocked(num compute.DeviceNum, replicated *engine.Layout) (*placement, error) {
	m := s.backend.runtime
	copied := &placement{replicated, m.Buffers()}
	for src := range m.All {
		if p := s.findOnDeviceLocked(compute.DeviceNum(src), replicated); p != nil {
			b, err := p.Buffers[src].CopyToDevice(s.backend.runtime.Context, m.All[num])
			if errors.Is(err, errors.ErrUnsupported) {
				break // copy through the host
			}
			copied.Buffers[num] = b
			return copied, err
		}
	}
	tensor, err := s.bytesLocked()
	if err != nil {
		return nil, err
	}
	var scratch []byte
	return copied, m.PutShard(s.backend.runtime.Context, replicated, int(num), tensor, &scratch, copied.Buffers)
}

// CopyToDevice returns a new buffer with the same value for another device.
func (b *Buffer) CopyToDevice(num compute.DeviceNum) (compute.Buffer, error) {
	s := b.state
	if err := s.backend.resources.Check(); err != nil {
		return nil, err
	}
	if err := s.backend.checkDevice(num); err != nil {
		return nil, err
	}
	if num == s.deviceNum {
		return nil, argumentError(fmt.Sprintf("copy of %s", s.shape), fmt.Sprintf("it is for device %d already", num),
			"use the buffer as it is")
	}
	copied, err := s.copyToDevice(num)
	runtime.KeepAlive(b)
	if err != nil {
		return nil, wrapError("copy", fmt.Sprintf("of %s to device %d", s.shape, num), err)
	}
	return s.backend.newBuffer(&bufferState{backend: s.backend, shape: s.shape, deviceNum: num,
		placements: []*placement{copied}})
}

func (s *bufferState) copyToDevice(num compute.DeviceNum) (*placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.checkUsable(), s.backend.checkNamedDevices()); err != nil {
		return nil, err
	}
	replicated, err := s.backend.replicatedLayout(s.shape)
	if err != nil {
		return nil, err
	}
	return s.copyToDeviceLocked(num, replicated)
}
