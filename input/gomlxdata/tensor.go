package gomlxdata

import (
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// FromTensor copies a GoMLX tensor to a host tensor of the same kind and dimensions. A tensor on a
// device is transferred to the host first. A dtype that host tensors do not support, such as a
// 4-bit integer, is a TypeError.
func FromTensor(t *tensors.Tensor) (input.Tensor, error) {
	if err := t.CheckValid(); err != nil {
		return input.Tensor{}, &errkind.Fault{Op: "gomlxdata: copy tensor", Err: err,
			Hint: "give a tensor that is not finalized", Class: errkind.FailedPreconditionError}
	}
	shape := t.Shape()
	kind, ok := input.KindOf(shape.DType)
	if !ok {
		return input.Tensor{}, &errkind.Fault{Op: "gomlxdata: copy tensor",
			Reason: fmt.Sprintf("a host tensor cannot hold %s", shape),
			Hint:   "convert it to another dtype", Class: errkind.TypeError}
	}
	if shape.Size() == 0 {
		return input.Zeros(kind, shape.Dimensions...)
	}
	var out input.Tensor
	var err error
	access := t.ConstBytes(func(data []byte) { out, err = input.FromBytes(kind, data, shape.Dimensions...) })
	if access != nil {
		return input.Tensor{}, &errkind.Fault{Op: "gomlxdata: copy tensor", Err: access}
	}
	return out, err
}

// ToTensor copies a host tensor to a GoMLX tensor, which the caller owns. A tensor of strings is a
// TypeError.
func ToTensor(t input.Tensor) (*tensors.Tensor, error) {
	dtype, ok := t.Kind().DType()
	if !ok {
		return nil, &errkind.Fault{Op: "gomlxdata: make tensor", Reason: fmt.Sprintf("a GoMLX tensor cannot hold %v", t),
			Hint: "turn it into numbers with Map", Class: errkind.TypeError}
	}
	out := tensors.FromShape(shapes.Make(dtype, t.Dims()...))
	if t.Len() == 0 {
		return out, nil
	}
	if err := out.MutableBytes(func(data []byte) { copy(data, t.Bytes()) }); err != nil {
		return nil, &errkind.Fault{Op: "gomlxdata: make tensor", Err: err}
	}
	return out, nil
}
