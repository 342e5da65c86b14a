package strategy

import (
	"context"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/lazy"
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
	shape := p.Shape()
	return lazy.Tensor(shape, p, func(flat any) error {
		v := reflect.ValueOf(flat)
		var data []byte
		if v.Len() > 0 {
			data = unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
		}
		if err := p.ReadPart(context.Background(), make([]int, shape.Rank()), shape.Dimensions, data); err != nil {
			return fault.Of("reading a tensor of parts", err, "")
		}
		return nil
	})
}

// partsOf returns the parts of a tensor of TensorOfParts, or nil.
func partsOf(t *tensors.Tensor) Parts {
	p, _ := lazy.Of(t).(Parts)
	return p
}
