package lazytensor

import (
	"context"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Reader reads slices of a tensor that is not in memory, such as a tensor in a file.
type Reader interface {
	// Shape returns the dtype and the dimensions of the whole tensor.
	Shape() shapes.Shape
	// ReadPart copies a slice of the tensor to dst, in row-major order. The slice begins at index
	// start and has size elements in each dimension. ReadPart must not change start and size.
	ReadPart(ctx context.Context, start, size []int, dst []byte) error
}

// FromReader returns a tensor whose elements are read from r when they are used. It is meant as the
// value of a variable in a store. A strategy reads only the shards of its own devices. Any other
// read of the tensor, such as by a checkpoint of the store, copies all elements to host memory.
// Such a read cannot be canceled, because GoMLX's tensors have no context. r must stay usable as
// long as the tensor is used.
func FromReader(r Reader) *tensors.Tensor {
	shape := r.Shape()
	return New(shape, r, func(flat any) error {
		v := reflect.ValueOf(flat)
		var data []byte
		if v.Len() > 0 {
			data = unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
		}
		if err := r.ReadPart(context.Background(), make([]int, shape.Rank()), shape.Dimensions, data); err != nil {
			return &errkind.Fault{Op: "strategy: reading a tensor of parts", Err: err}
		}
		return nil
	})
}

// ReaderOf returns the Reader that was passed to [FromReader], or nil for any other tensor.
func ReaderOf(t *tensors.Tensor) Reader {
	r, _ := SourceOf(t).(Reader)
	return r
}
