package lazytensor

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// buffer is the immutable buffer of a lazy tensor.
type buffer struct {
	backend *lowering.Backend
	shape   shapes.Shape
	source  any
	read    func(flat any) error
}

var _ compute.Buffer = (*buffer)(nil)

// New returns a tensor whose elements are computed when they are used. Each read of the tensor
// calls the function read, which must fill a Go slice with all elements and be safe for concurrent
// use. [SourceOf] returns source for the tensor.
func New(shape shapes.Shape, source any, read func(flat any) error) *tensors.Tensor {
	b := &buffer{backend: lowering.New(lowering.Options{Name: "lazy"}), shape: shape, source: source, read: read}
	t, err := tensors.FromBuffer(b)
	if err != nil { // of Shape or DeviceNum
		panic(err)
	}
	return t
}

// SourceOf returns the source that was passed to [New], or nil for any other tensor.
func SourceOf(t *tensors.Tensor) any {
	if !t.IsOnAnyDevice() {
		return nil
	}
	backend, err := t.Backend()
	if err != nil {
		return nil
	}
	if _, ok := backend.(*lowering.Backend); !ok {
		return nil
	}
	held, err := t.Buffer(backend, 0)
	if err != nil {
		return nil
	}
	b, ok := held.(*buffer)
	if !ok {
		return nil
	}
	return b.source
}

func (b *buffer) Backend() compute.Backend              { return b.backend }
func (b *buffer) Finalize() error                       { return nil }
func (b *buffer) Shape() (shapes.Shape, error)          { return b.shape, nil }
func (b *buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }
func (b *buffer) Data() (any, error)                    { return nil, errors.ErrUnsupported }
func (b *buffer) ToFlatData(flat any) error             { return b.read(flat) }

func (b *buffer) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	return nil, &errkind.Fault{Op: "strategy: copying a value that is not made yet",
		Reason: "it is made when it is read", Hint: "read it",
		Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
}
