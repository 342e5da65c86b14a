package strategy

import (
	"context"
	"errors"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Parts is a tensor that lies nowhere as a whole, such as one of a file: its parts are read where
// they are needed. Its methods are safe for concurrent use.
//
// It may also have ReadCells(ctx, start, size, cells, into), which fills into with a box that is cut
// into cells, so many in each dimension: the cells in row-major order, and row-major in themselves.
// Then the parts of several devices that have the host's memory are read at once.
type Parts interface {
	// Shape returns the dtype and the dimensions of the whole tensor.
	Shape() shapes.Shape
	// ReadPart fills into with the elements from start on, size of them in each dimension,
	// row-major. start and size are not to be changed.
	ReadPart(ctx context.Context, start, size []int, into []byte) error
}

// TensorOfParts returns a tensor for a store's variable whose elements are read when they are
// needed. Each process reads the parts that its devices hold, when a step first uses the variable;
// [Variables.Load] says how. Who reads the tensor itself, such as a checkpoint of a store, reads
// all of it to the host's memory. What p reads from has to stay open until then.
func TensorOfParts(p Parts) *tensors.Tensor {
	b := &partsBuffer{backend: lowering.New(lowering.Options{Name: "parts"}), parts: p, shape: p.Shape()}
	t, err := tensors.FromBuffer(b)
	if err != nil { // of Shape or DeviceNum
		panic(err)
	}
	return t
}

// partsBuffer stands in a tensor for its parts. It is a buffer of GoMLX's, and immutable.
type partsBuffer struct {
	backend *lowering.Backend
	parts   Parts
	shape   shapes.Shape
}

var _ compute.Buffer = (*partsBuffer)(nil)

// partsOf returns the parts of a tensor of TensorOfParts, or nil.
func partsOf(t *tensors.Tensor) Parts {
	b, _ := ownBuffer(t).(*partsBuffer)
	if b == nil {
		return nil
	}
	return b.parts
}

func (b *partsBuffer) Backend() compute.Backend              { return b.backend }
func (b *partsBuffer) Finalize() error                       { return nil }
func (b *partsBuffer) Shape() (shapes.Shape, error)          { return b.shape, nil }
func (b *partsBuffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }
func (b *partsBuffer) Data() (any, error)                    { return nil, errors.ErrUnsupported }

func (b *partsBuffer) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	return nil, &Error{Op: "strategy: copying a tensor of parts", Reason: "it is read where it is needed", Hint: "read it",
		Class: NotImplementedError, Match: errors.ErrUnsupported}
}

// ToFlatData reads the whole tensor.
func (b *partsBuffer) ToFlatData(flat any) error {
	v := reflect.ValueOf(flat)
	var data []byte
	if v.Len() > 0 {
		data = unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
	}
	err := b.parts.ReadPart(context.Background(), make([]int, b.shape.Rank()), b.shape.Dimensions, data)
	if err != nil {
		return fault.Of("reading a tensor of parts", err, "")
	}
	return nil
}
