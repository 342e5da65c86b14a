package lazy

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// buffer is the immutable buffer of a tensor whose elements are read from another value.
type buffer struct {
	backend *lowering.Backend
	shape   shapes.Shape
	of      any
	read    func(flat any) error
}

var _ compute.Buffer = (*buffer)(nil)

// Tensor returns a tensor that represents the value of. read fills a Go slice with all elements. It is
// called for each read of the tensor and must be safe for concurrent use.
func Tensor(shape shapes.Shape, of any, read func(flat any) error) *tensors.Tensor {
	b := &buffer{backend: lowering.New(lowering.Options{Name: "lazy"}), shape: shape, of: of, read: read}
	t, err := tensors.FromBuffer(b)
	if err != nil { // of Shape or DeviceNum
		panic(err)
	}
	return t
}

// Of returns the value that a tensor from [Tensor] represents, or nil for another tensor.
func Of(t *tensors.Tensor) any {
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
	return b.of
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
