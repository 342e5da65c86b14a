package lazy

import (
	"context"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Parts is a tensor that is read in parts when they are needed, such as a tensor in a file. It is a
// [engine.Source] with a known shape.
type Parts interface {
	// Shape returns the dtype and the dimensions of the whole tensor.
	Shape() shapes.Shape
	// ReadPart fills dst with the elements of the box that begins at start and has the given size in
	// each dimension, in row-major order. It must not change start and size.
	ReadPart(ctx context.Context, start, size []int, dst []byte) error
}

// Whole returns a tensor for a variable of a store whose elements are read from p when they are
// needed. A strategy reads the parts of its own devices. A direct read of the tensor, such as by a
// checkpoint of a store, copies all elements to the host's memory and cannot be canceled, because
// GoMLX's tensors have no context. The source of p must stay open until then.
func Whole(p Parts) *tensors.Tensor {
	shape := p.Shape()
	return Tensor(shape, p, func(flat any) error {
		v := reflect.ValueOf(flat)
		var data []byte
		if v.Len() > 0 {
			data = unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
		}
		if err := p.ReadPart(context.Background(), make([]int, shape.Rank()), shape.Dimensions, data); err != nil {
			return &errkind.Fault{Op: "strategy: reading a tensor of parts", Err: err}
		}
		return nil
	})
}

// PartsOf returns the Parts of a tensor from [Whole], or nil for another tensor.
func PartsOf(t *tensors.Tensor) Parts {
	p, _ := Of(t).(Parts)
	return p
}
