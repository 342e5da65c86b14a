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
// [mesh.Source] with a known shape.
type Parts interface {
	// Shape returns the dtype and the dimensions of the whole tensor.
	Shape() shapes.Shape
	// ReadPart fills into with the elements from start on, size of them in each dimension,
	// row-major. start and size are not to be changed.
	ReadPart(ctx context.Context, start, size []int, into []byte) error
}

// Whole returns a tensor for a store's variable whose elements are read when they are needed. A
// strategy reads the parts that its devices hold. Who reads the tensor itself, such as a checkpoint
// of a store, reads all of it to the host's memory, for as long as that takes: GoMLX's tensors know
// no context. What p reads from has to stay open until then.
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

// PartsOf returns the parts of a tensor of [Whole], or nil.
func PartsOf(t *tensors.Tensor) Parts {
	p, _ := Of(t).(Parts)
	return p
}
